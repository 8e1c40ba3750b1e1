"""docs/errors.md, printed from the errors.md of each folder.

A folder declares the errors that it reports: text, cause and cure, below the heading of the page's section. The page's sections,
their order and their introductions are in errors_page.md beside this file.

    python3 tests/house/errors_page.py > docs/errors.md
"""

import errno
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
HEADING = re.compile(r"^## (.*)$")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PLACEHOLDER = re.compile(r'<[A-Za-z][^<>]*>|\.\.\.|"')
WORD = re.compile(r"[A-Za-z_.][\w.\-/]*")


def declarations() -> list[pathlib.Path]:
    """The errors.md of each folder, in the order of their names."""
    found = [path for path in SOURCE.glob("**/errors.md") if path.parent != SOURCE / "docs"]
    return sorted(path for path in found if "build" not in path.relative_to(SOURCE).parts)


def rows(path: pathlib.Path) -> dict[str, list[str]]:
    """The rows of one errors.md by section, without the heads of its tables."""
    found: dict[str, list[str]] = {}
    section = None
    for line in path.read_text().splitlines():
        if heading := HEADING.match(line):
            section = found.setdefault(heading[1], [])
        elif line.startswith("| ") and section is not None and not line.startswith(("| Text", "| ---", "| Cause")):
            section.append(line)
    return found


def page() -> str:
    """Fills the rows of all folders into the template, after the table of their section."""
    declared: dict[str, list[str]] = {}
    for path in declarations():
        for section, lines in rows(path).items():
            declared.setdefault(section, []).extend(lines)
    printed, section = [], None
    for line in TEMPLATE.read_text().splitlines():
        if heading := HEADING.match(line):
            section = heading[1]
        printed.append(line)
        if line.startswith("| ---"):
            printed += declared.pop(section, [])
    if declared:
        raise SystemExit(f"{TEMPLATE.name} has no section with a table for: {sorted(declared)}")
    return "\n".join(printed) + "\n"


def trigrams(text: str) -> list[tuple[str, str, str]]:
    """Each three words that follow each other in the fixed parts of a text."""
    found = []
    for part in PLACEHOLDER.split(text):
        words = WORD.findall(part)
        found += zip(words, words[1:], words[2:])
    return found


def said_in(folder: pathlib.Path) -> set[tuple[str, str, str]]:
    """What the programs of a folder can say."""
    text = ""
    for path in folder.iterdir():
        if path.suffix in (".cc", ".h"):
            joined = re.sub(r'(?<!\\)"\s*"', "", path.read_text())  # Adjacent literals are one.
            text += " ".join(LITERAL.findall(joined)).replace('\\"', '"') + " "
        elif path.is_file() and path.suffix in (".py", ".sh", ""):
            text += re.sub(r'"\s*\n\s*f?"', "", path.read_text()) + " "
    words = WORD.findall(text)
    return set(zip(words, words[1:], words[2:]))


def unsaid() -> list[str]:
    """Texts that are declared and that no program of their folder can say: reworded, or gone.

    Programs put a text together from parts, so a third of it must be there word for word; a text of few words is not checked.
    """
    common = said_in(SOURCE / "base")
    for code in errno.errorcode:
        common.update(trigrams(os.strerror(code)))
    found = []
    for path in declarations():
        said = common | said_in(path.parent)
        for lines in rows(path).values():
            for line in lines:
                texts = re.findall(r"`([^`]+)`", line[: line.index(" | ", 2)])
                for text in texts:
                    fixed = trigrams(text)
                    if len(fixed) > 3 and 3 * sum(each in said for each in fixed) < len(fixed):
                        found.append(f"{path.relative_to(SOURCE)}: {text}")
    return found


if __name__ == "__main__":
    sys.stdout.write(page())
