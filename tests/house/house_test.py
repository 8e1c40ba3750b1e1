"""The rules of the house that no compiler checks: who includes whom, what is registered, file sizes."""

import os
import pathlib
import re
import subprocess
import unittest

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
BUF = os.environ["GENESIS_BUF"]

# Folder: whose headers it may include besides its own. server and trainer meet only in proto.
MAY_INCLUDE = {
    "config": {"proto"},
    "metrics": {"config", "proto"},
    "replay": {"config", "proto"},
    "server": {"metrics", "config", "proto", "replay"},
    "client": {"config", "proto"},
    "trainer": {"client", "config", "proto", "replay"},
    "cli": {"client", "config", "proto", "replay"},
}
FOLDERS = set(MAY_INCLUDE) | {"proto", "tests"}
HEADER_LINES, SOURCE_LINES = 250, 500
NOT_OURS = {"build", "genesis-data", "__pycache__", ".git", ".cache", ".venv", ".vscode", ".idea"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2|c10d)/")
# Written in two parts, so that this file does not hold what it looks for.
# A row of docs/promised_cases.md names tests as `file` `Suite.Name`, `Suite.Name`; `file` ...
CASE_FILE = re.compile(r"`(tests/[\w./]+\.(?:cc|py))`")
CASE_NAME = re.compile(r"`(\w+)\.(\w+)`")
LEFT_OVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")


def files(*suffixes: str) -> list[pathlib.Path]:
    found = []
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        found += [pathlib.Path(folder, name) for name in names if name.endswith(suffixes)]
    return sorted(found)


def folder_of(include: str) -> str:
    """The folder of ours that an include is from; empty when it is somebody else's."""
    first = include.split("/")[0]
    if first == "genesis":
        return "proto"
    return first if first in FOLDERS and "/" in include else ""


def has_test(path: pathlib.Path, suite: str, name: str) -> bool:
    if not path.exists():
        return False
    text = path.read_text()
    if path.suffix == ".cc":
        return re.search(rf"^TEST(_F|_P)?\(\s*{suite},\s*{name}\)", text, re.MULTILINE) is not None
    # The methods of a class are indented until its end.
    body = re.search(rf"^class {suite}\b.*\n((?:[ \t].*\n|\n)*)", text, re.MULTILINE)
    return body is not None and re.search(rf"^    def {name}\(", body[1], re.MULTILINE) is not None


class House(unittest.TestCase):
    maxDiff = None

    def expect_none(self, faults: list[str], rule: str) -> None:
        self.assertEqual(faults, [], f"\n{rule}:\n  " + "\n  ".join(faults))

    def test_folders_include_only_whom_they_may(self):
        faults = []
        for path in files(".h", ".cc"):
            parts = path.relative_to(SOURCE).parts
            owner = parts[1] if parts[0] == "tests" else parts[0]
            if owner not in MAY_INCLUDE:
                continue
            allowed = {owner, ""} | MAY_INCLUDE[owner]
            if parts[0] == "tests":
                allowed.add("tests")
            faults += [
                f"{path.relative_to(SOURCE)} includes {include}"
                for include in INCLUDE.findall(path.read_text())
                if folder_of(include) not in allowed
            ]
        self.expect_none(faults, f"a folder may include itself and these: {MAY_INCLUDE}")

    def test_the_page_says_what_a_folder_may_include(self):
        page = (SOURCE / "docs" / "contributing.md").read_text()
        rows = re.findall(r"^\| (\w+) \| [^|]+ \| ([\w, ]+) \|$", page, re.MULTILINE)
        told = {folder: set(others.split(", ")) for folder, others in rows if folder in MAY_INCLUDE}
        self.assertEqual(told, MAY_INCLUDE)

    def test_only_the_trainer_sees_torch(self):
        faults = [
            f"{path.relative_to(SOURCE)} includes {include}"
            for path in files(".h", ".cc")
            if "trainer" not in path.relative_to(SOURCE).parts
            and "benchmarks" not in path.relative_to(SOURCE).parts
            for include in INCLUDE.findall(path.read_text())
            if TORCH.match(include)
        ]
        self.expect_none(faults, "only trainer/ includes torch")

    def test_only_the_worker_links_torch(self):
        faults = []
        for name in ("genesisd", "genesisctl"):
            needed = subprocess.run(
                ["readelf", "-d", BIN / name], capture_output=True, text=True, check=True
            ).stdout
            faults += re.findall(r"NEEDED.*\[(lib(?:torch|c10|cuda)[^]]*)\]", needed)
        self.expect_none(faults, "the daemon and the command line link no LibTorch and no CUDA")

    def test_every_cc_test_is_registered(self):
        faults = []
        for path in files("_test.cc"):
            lists = path.parent / "CMakeLists.txt"
            text = lists.read_text() if lists.exists() else ""
            if not re.search(rf"\b{path.stem}\b", text):
                faults.append(f"{path.relative_to(SOURCE)} is not in {lists.relative_to(SOURCE)}")
        self.expect_none(faults, "genesis_tests(room FILES name) or genesis_test(name) registers a test")

    def test_files_are_short(self):
        faults = []
        for suffix, limit in ((".h", HEADER_LINES), (".cc", SOURCE_LINES)):
            for path in files(suffix):
                lines = path.read_text().count("\n")
                if lines > limit:
                    faults.append(f"{path.relative_to(SOURCE)} has {lines} lines, limit {limit}")
        self.expect_none(faults, "a long file holds two ideas; split it")

    def test_nothing_is_left_for_later(self):
        faults = []
        for path in files(".h", ".cc", ".py", ".sh", ".cmake", ".proto", ".txt", ".yaml", ".md"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if LEFT_OVER.search(line):
                    faults.append(f"{path.relative_to(SOURCE)}:{number}: {line.strip()}")
        self.expect_none(faults, "what is missing is said in the documentation, or done")

    def test_every_promised_case_names_tests_that_exist(self):
        faults, numbers = [], []
        for line in (SOURCE / "docs" / "promised_cases.md").read_text().splitlines():
            row = re.match(r"\| (\d+) \| [^|]+ \| (.*) \|$", line)
            if not row:
                continue
            numbers.append(int(row[1]))
            # "", file, what follows it, file, what follows it, ...
            parts = CASE_FILE.split(row[2])
            named = [
                (path, *case)
                for path, text in zip(parts[1::2], parts[2::2])
                for case in CASE_NAME.findall(text)
            ]
            faults += [f"case {row[1]}: {path} has no {suite}.{name}"
                       for path, suite, name in named if not has_test(SOURCE / path, suite, name)]
            if not named:
                faults.append(f"case {row[1]} names no test")
        self.assertEqual(numbers, list(range(1, 31)))
        self.expect_none(faults, "docs/promised_cases.md names tests as `file` `Suite.Name`")

    def test_the_implementation_report_names_what_exists(self):
        text, faults = (SOURCE / "docs" / "implementation_report.md").read_text(), []
        faults += [f"there is no {path}" for path in re.findall(r"`((?:config|metrics|proto|server|trainer|deploy|tests|examples)/"
                                                               r"[a-z0-9_./]*[a-z0-9_])", text)
                   if not (SOURCE / path).exists()]
        named = 0
        for line in text.splitlines():
            parts = CASE_FILE.split(line)
            for path, rest in zip(parts[1::2], parts[2::2]):
                for suite, name in CASE_NAME.findall(rest):
                    named += 1
                    if not has_test(SOURCE / path, suite, name):
                        faults.append(f"{path} has no {suite}.{name}")
        self.assertGreater(named, 10)
        self.expect_none(faults, "docs/implementation_report.md names tests as `file` `Suite.Name`")

    def test_shell_scripts_parse(self):
        faults = []
        for path in files(".sh", "run"):
            if path.suffix != ".sh" and b"bash" not in path.read_bytes().split(b"\n")[0]:
                continue
            check = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            if check.returncode != 0:
                faults.append(check.stderr.strip())
        self.expect_none(faults, "bash -n")

    def test_what_names_an_interpreter_may_be_executed(self):
        faults = []
        for path in files(""):
            if not path.is_file() or path.is_symlink():
                continue
            with path.open("rb") as file:
                if file.read(2) == b"#!" and not os.access(path, os.X_OK):
                    faults.append(f"{path.relative_to(SOURCE)} opens with #!: chmod +x")
        self.expect_none(faults, "a script with an interpreter is executable")

    def test_protocol_keeps_the_rules_of_buf(self):
        lint = subprocess.run([BUF, "lint"], cwd=SOURCE / "proto", capture_output=True, text=True)
        self.assertEqual(lint.returncode, 0, lint.stdout + lint.stderr)


if __name__ == "__main__":
    unittest.main()
