"""Tests rules of the project that no compiler checks: includes, registered tests, file sizes, the English of comments."""

import csv
import io
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tokenize
import typing
import unittest

import cures
import frozen_names

SOURCE = pathlib.Path(os.environ["GENESIS_SOURCE"])
BIN = pathlib.Path(os.environ["GENESIS_BIN"])
BUF, RUFF = os.environ["GENESIS_BUF"], os.environ["GENESIS_RUFF"]

# These programs share only the folders below them.
PROGRAMS = ("cli", "server", "trainer")
HEADER_LINES, SOURCE_LINES, SOURCES_OF_A_FOLDER, CLASS_LINES = 250, 500, 25, 550
NOT_OURS = {"build", "genesis-data", "__pycache__", ".git", ".cache", ".venv", ".vscode", ".idea"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2|c10d)/")
# A row of docs/evidence.csv names tests as `file` `Suite.Name`, `Suite.Name`; `file` ...
CASE_FILE = re.compile(r"`(tests/[\w./]+\.(?:cc|py))`")
CASE_NAME = re.compile(r"`(\w+)\.(\w+)`")
# docs/style.md: sentences in comments do not start with OPENINGS and do not contain WORDS.
OPENINGS = re.compile(r"^(?:Of|What|Those|That|By|Where|Made|Who|Whoever|Which) |[.:;] (?:Of|What|Those) [a-z]")
WORDS = re.compile(r"\b(?:whoever|nobody|somebody|anybody|anew|besides|but for|tells?|told|hears?)\b"
                   r"|, for (?:it|they|there|that|then|this|nothing|what) |(?<!there )\b(?:is|are) no (?!longer|more)[a-z]+", re.IGNORECASE)
RIDDLE = re.compile(r"^\s*// (Of|What|Those) |^\s*//.*[.:;] (Of|What|Those) [a-z]")
CPP_COMMENT = re.compile(r"(?:^|\s)// (.*)$", re.MULTILINE)
PRIVATE = re.compile(r"\bkMost\w*")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# In two parts, so that this file does not match its own pattern.
LEFT_OVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")


def files(*suffixes: str) -> list[pathlib.Path]:
    found = []
    for folder, folders, names in os.walk(SOURCE):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        found += [pathlib.Path(folder, name) for name in names if name.endswith(suffixes)]
    return sorted(found)


def anchors(page: pathlib.Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def layers() -> list[str]:
    """Returns the folders of docs/architecture.md, the lowest first."""
    page = (SOURCE / "docs" / "architecture.md").read_text()
    return re.findall(r"^\| (?:\*\*)?`([\w/]+)`(?:\*\*)? \| ", page, re.MULTILINE)


LAYERS = layers()


def room_of(path: str) -> str:
    """Returns the folder in docs/architecture.md that contains a file; empty if none does."""
    if path.startswith("genesis/"):
        return "proto"
    inside = [room for room in LAYERS if path.startswith(room + "/")]
    return max(inside, key=len, default="")


def target_of(room: str) -> str:
    return "genesis_" + room.replace("/", "_")


def sources() -> list[tuple[str, pathlib.Path]]:
    """Returns (folder, path) of each C++ file outside of tests/, benchmarks/ and examples/."""
    found = []
    for path in files(".h", ".cc"):
        relative = path.relative_to(SOURCE)
        if relative.parts[0] not in ("tests", "benchmarks", "examples"):
            found.append((room_of(str(relative)), path))
    return found


def comments(path: pathlib.Path) -> typing.Iterator[tuple[int, str]]:
    """Yields (line, text) of each comment of a C++ or Python file, including trailing comments and docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        for found in CPP_COMMENT.finditer(text):
            yield text.count("\n", 0, found.start(1)) + 1, found[1]
        return
    statement = True  # The next token begins a statement.
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type == tokenize.STRING and statement and token.string.startswith('"""'):
            yield token.start[0], " ".join(token.string.strip('"').split())
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def rooms_included(path: pathlib.Path) -> set[str]:
    return {room_of(include) for include in INCLUDE.findall(path.read_text())} - {""}


def has_test(path: pathlib.Path, suite: str, name: str) -> bool:
    if not path.exists():
        return False
    text = path.read_text()
    if path.suffix == ".cc":
        return re.search(rf"^TEST(_F|_P)?\(\s*{suite},\s*{name}\)", text, re.MULTILINE) is not None
    return python_test(text, suite, name) is not None


def python_test(text: str, suite: str, name: str) -> typing.Optional[str]:
    """Returns the decorators of a test method and of its class; None if there is no such method."""
    # The body of a class is indented.
    body = re.search(rf"((?:^@.*\n)*)^class {suite}\b.*\n((?:[ \t].*\n|\n)*)", text, re.MULTILINE)
    method = body and re.search(rf"((?:^    @.*\n)*)^    def {name}\(", body[2], re.MULTILINE)
    return body[1] + method[1] if body and method else None


def is_in_gate(path: pathlib.Path, suite: str, name: str) -> bool:
    return path.suffix == ".cc" or "@tiers.nightly" not in (python_test(path.read_text(), suite, name) or "")


class House(unittest.TestCase):
    maxDiff = None

    def expect_none(self, faults: list[str], rule: str) -> None:
        self.assertEqual(faults, [], f"\n{rule}:\n  " + "\n  ".join(faults))

    def test_refusals_say_what_is_accepted_or_how_to_fix_it(self):
        without = cures.without_cure(SOURCE)
        self.assertGreater(len(cures.refusals(SOURCE)), 300, "the patterns of cures.py find them")
        self.assertLessEqual(len(without), cures.WITHOUT_CURE,
                             "docs/style.md: an error says what is accepted or how to fix it. Without:\n  " + "\n  ".join(without))

    def test_links_of_pages_lead_somewhere(self):
        faults = []
        for path in files(".md"):
            for target in LINK.findall(CODE.sub("", path.read_text())):
                name, _, anchor = target.partition("#")
                page = (path.parent / name).resolve() if name else path
                if not page.exists():
                    faults.append(f"{path.relative_to(SOURCE)}: there is no {target}")
                elif anchor and page.suffix == ".md" and anchor not in anchors(page):
                    faults.append(f"{path.relative_to(SOURCE)}: there is no heading {target}")
        self.expect_none(faults, "a link names a file and a heading that exist")

    def test_the_list_of_pages_has_each(self):
        listed = set(LINK.findall((SOURCE / "docs" / "README.md").read_text()))
        pages = {str(path.relative_to(SOURCE / "docs")) for path in files(".md") if path.is_relative_to(SOURCE / "docs")}
        self.expect_none(sorted(pages - listed - {"README.md"}), "docs/README.md lists every page")

    def test_every_folder_is_on_the_page(self):
        self.expect_none(
            [str(path.relative_to(SOURCE)) for room, path in sources() if not room],
            "docs/architecture.md lists the folders",
        )
        self.expect_none(
            [room for room in LAYERS if not (SOURCE / room).is_dir()], "docs/architecture.md names folders that exist"
        )

    def test_folders_include_only_those_above_them_on_the_page(self):
        height, faults = {room: i for i, room in enumerate(LAYERS)}, []
        for room, path in sources():
            for other in rooms_included(path) - {room}:
                program, foreign = room.split("/")[0], other.split("/")[0]
                apart = program != foreign and program in PROGRAMS and foreign in PROGRAMS
                if apart or height[other] > height[room]:
                    faults.append(f"{path.relative_to(SOURCE)} includes {other}")
        self.expect_none(faults, "a folder includes those above it in docs/architecture.md, and of no other program")

    def test_targets_link_the_folders_that_they_include(self):
        included: dict[str, set[str]] = {}
        for room, path in sources():
            # base links the protocol.
            included.setdefault(room, set()).update(rooms_included(path) - {room, "proto"})
        faults = []
        for room, others in included.items():
            text = (SOURCE / room / "CMakeLists.txt").read_text()
            library = re.search(rf"genesis_library\({target_of(room)}\b(.*?)\)", text, re.DOTALL)
            if library is None:
                faults.append(f"{room}/CMakeLists.txt has no genesis_library({target_of(room)})")
                continue
            linked = {room for room in LAYERS if room != "proto" and re.search(rf"\b{target_of(room)}\b", library[1].split("LINK")[-1])}
            faults += [f"{room} includes {other} and does not link it" for other in others - linked]
            faults += [f"{room} links {other} and does not include it" for other in linked - others]
        self.expect_none(faults, "LINK is what a folder includes")

    def test_folders_are_small(self):
        count: dict[str, int] = {}
        for room, path in sources():
            count[room] = count.get(room, 0) + (path.suffix == ".cc")
        self.expect_none(
            [f"{room} has {number}" for room, number in count.items() if number > SOURCES_OF_A_FOLDER],
            f"a folder has at most {SOURCES_OF_A_FOLDER} source files",
        )

    def test_folders_say_what_they_hold_and_where_to_start(self):
        faults = []
        for room in LAYERS:
            if room == "proto":
                continue
            page = SOURCE / room / "README.md"
            text = page.read_text() if page.exists() else ""
            if not text.startswith(f"# {room}\n") or "\nCalled by " not in text:
                faults.append(f"{room}/README.md: says not what it holds and who calls it")
            start = re.search(r"^Start with (.*)$", text, re.MULTILINE)
            for name in re.findall(r"`([\w./*]+)`", start[1]) if start else [""]:
                if not name or not (SOURCE / room / name).exists():
                    faults.append(f"{room}/README.md: has no file {name!r} to start with")
        self.expect_none(faults, "each folder opens with a README")

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

    def test_classes_are_small(self):
        """The size of a class is its declaration plus its methods in all files of its folder."""
        lines: dict[str, int] = {}
        for _, path in sources():
            name, opening = "", re.compile(r"^(?:class|struct) (\w+)[^;]*$|^[\w:<>,&* ]*?\b(\w+)::~?\w+\(")
            for line in path.read_text().splitlines():
                found = opening.match(line) if not name else None
                if found:
                    name = f"{path.parent.relative_to(SOURCE)} {found[1] or found[2]}"
                if name:
                    lines[name] = lines.get(name, 0) + 1
                if name and line.startswith("}"):
                    name = ""
        faults = [f"{name} has {count} lines" for name, count in lines.items() if count > CLASS_LINES]
        self.expect_none(faults, f"a class has at most {CLASS_LINES} lines with its methods")

    def test_comments_open_as_sentences(self):
        faults = []
        for path in files(".h", ".cc", ".py"):
            name = str(path.relative_to(SOURCE))
            if path.suffix != ".py":
                faults += [f"{name}:{number}: {line.strip()}" for number, line in enumerate(path.read_text().splitlines(), 1)
                           if RIDDLE.search(line) or PRIVATE.search(line)]
            faults += [f"{name}:{number}: {text}" for number, text in comments(path)
                       if OPENINGS.search(text) or WORDS.search(CODE.sub("", text))]
        self.expect_none(faults, "docs/style.md: no sentence opens with Of, What, That ...; a comment names the actor and "
                                 "says because, again, except; a bound is kMax...")

    def test_nothing_is_left_for_later(self):
        faults = []
        for path in files(".h", ".cc", ".py", ".sh", ".cmake", ".proto", ".txt", ".yaml", ".md"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if LEFT_OVER.search(line):
                    faults.append(f"{path.relative_to(SOURCE)}:{number}: {line.strip()}")
        self.expect_none(faults, "what is missing is said in the documentation, or done")

    def test_every_promise_names_tests_that_exist(self):
        text = (SOURCE / "docs" / "evidence.csv").read_text()
        faults, numbers = [], []
        for row in csv.DictReader(text.splitlines()):
            # Empty text, then alternately a file and the text after it.
            parts = CASE_FILE.split(row["shown by"])
            named = [
                (path, *case)
                for path, rest in zip(parts[1::2], parts[2::2])
                for case in CASE_NAME.findall(rest)
            ]
            faults += [f"{row['promised']}: {path} has no {suite}.{name}"
                       for path, suite, name in named if not has_test(SOURCE / path, suite, name)]
            if row["case"]:
                numbers.append(int(row["case"]))
                if not any(has_test(SOURCE / path, suite, name) and is_in_gate(SOURCE / path, suite, name) for path, suite, name in named):
                    faults.append(f"case {row['case']} names no test of the gate")
        self.assertEqual(numbers, list(range(1, 31)))
        self.expect_none(faults, "docs/evidence.csv names tests as `file` `Suite.Name`")
        text += (SOURCE / "docs" / "evidence.md").read_text()
        self.expect_none([path for path in re.findall(r"`((?:config|metrics|proto|server|trainer|deploy|tests|examples)/"
                                                      r"[a-z0-9_./]*[a-z0-9_])", text) if not (SOURCE / path).exists()],
                         "docs/evidence.md and evidence.csv name files that exist")

    def test_slow_tests_exist(self):
        known = {".".join(test) for path in files("_test.cc")
                 for test in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)}
        names = [line for line in (SOURCE / "tests" / "slow_tests.txt").read_text().splitlines() if not line.startswith("#")]
        # A test with parameters is listed as Instance/Suite.Name/0.
        faults = [name for name in names if re.sub(r"^\w+/(.*)/\w+$", r"\1", name) not in known]
        self.expect_none(faults, "tests/slow_tests.txt names tests that exist")

    def test_settings_and_job_fields_are_frozen(self):
        frozen = (SOURCE / "tests" / "house" / "frozen_names.txt").read_text().splitlines()
        self.assertEqual(frozen_names.names(), frozen, "a name is a promise: add or remove it in tests/house/frozen_names.txt too, "
                                                       "and argue for it in the commit")

    def test_shell_scripts_parse(self):
        faults = []
        for path in files(".sh", "run"):
            if path.suffix != ".sh" and b"bash" not in path.read_bytes().split(b"\n")[0]:
                continue
            check = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            if check.returncode != 0:
                faults.append(check.stderr.strip())
        self.expect_none(faults, "bash -n")

    def test_python_names_exist_once_and_are_used(self):
        check = subprocess.run([RUFF, "check", "--isolated", "--no-cache", "--quiet", "--select", "F,E9", "--output-format", "concise",
                                "--exclude", ",".join(NOT_OURS), SOURCE], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_what_names_an_interpreter_may_be_executed(self):
        faults = []
        for path in files(""):
            if not path.is_file() or path.is_symlink():
                continue
            with path.open("rb") as file:
                if file.read(2) == b"#!" and not os.access(path, os.X_OK):
                    faults.append(f"{path.relative_to(SOURCE)} opens with #!: chmod +x")
        self.expect_none(faults, "a script with an interpreter is executable")

    def test_every_proto_names_its_go_package(self):
        self.expect_none([str(path.relative_to(SOURCE)) for path in files(".proto") if "\noption go_package = " not in path.read_text()],
                         "protoc-gen-go needs option go_package in each file that it reads")

    def test_protocol_keeps_the_rules_of_buf(self):
        lint = subprocess.run([BUF, "lint"], cwd=SOURCE / "proto", capture_output=True, text=True)
        self.assertEqual(lint.returncode, 0, lint.stdout + lint.stderr)

    def test_protocol_stays_compatible_with_the_released_one(self):
        """After a release: `buf build proto --path proto/genesis --exclude-source-info -o tests/house/released_api.binpb`."""
        released = SOURCE / "tests" / "house" / "released_api.binpb"

        def broken(proto: pathlib.Path) -> str:
            check = subprocess.run([BUF, "breaking", "--against", released], cwd=proto, capture_output=True, text=True)
            return check.stdout + check.stderr

        self.assertEqual(broken(SOURCE / "proto"), "", "keep the number and name of a field, or reserve both")
        with tempfile.TemporaryDirectory() as folder:
            changed = pathlib.Path(folder, "proto")
            shutil.copytree(SOURCE / "proto", changed)
            page = changed / "genesis" / "training" / "v1" / "training.proto"
            text = page.read_text()
            page.write_text(text.replace("bool nesterov = 8;", "bool nesterov = 80;"))
            self.assertIn('"nesterov" on message "OptimizerSpec" was deleted without reserving the number "8"', broken(changed))
            page.write_text(text.replace("bool nesterov = 8;", 'reserved 8;\n  reserved "nesterov";'))
            self.assertEqual(broken(changed), "", "a removed field is reserved")


if __name__ == "__main__":
    unittest.main()
