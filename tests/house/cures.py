"""Lists error texts that do not say what is accepted or how to fix the error.

It finds calls of an absl error that is the caller's fault (InvalidArgumentError and the like) in C++, and each `raise` of a class
named *Error in Python, if the text has three words or more. It does not find texts that are built elsewhere.

    python3 tests/house/cures.py        prints them with file and line
"""

import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Number of error texts without a cure. It must not grow.
WITHOUT_CURE = 54
PRODUCTS = ("base", "cli", "client", "config", "metrics", "python/src", "replay", "server", "trainer")

CPP = re.compile(r"\babsl::(?:AlreadyExists|FailedPrecondition|InvalidArgument|NotFound|OutOfRange|PermissionDenied|"
                 r"ResourceExhausted|Unauthenticated)Error\(")
PYTHON = re.compile(r"\braise (?:\w+\.)*\w+Error\(")
LITERAL = {".cc": re.compile(r'"((?:[^"\\\n]|\\.)*)"'), ".py": re.compile(r"""f?("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")}
CHARACTER = re.compile(r"'(?:\\.|[^'\\\n])'")
WORD = re.compile(r"[A-Za-z]{2,}")
# Patterns of a cure: accepted values, a second clause, or a pointer to the answer.
CURE = re.compile(r"\baccepted\b|\baccepts\b|\bexpected\b|; |\bdid you mean\b|\bsee \S|\btry again\b|"
                  r": (?:ask|call|check|choose|clamp|draw|export|fill|free|give|install|let|make|mend|name|remove|run|set|use|write) ")


def arguments(text: str, start: int, literal: re.Pattern) -> str:
    """Returns the text from `start` to the bracket that closes the one just before `start`."""
    depth, at = 1, start
    while at < len(text) and depth > 0:
        skipped = literal.match(text, at) or CHARACTER.match(text, at)
        if skipped:
            at = skipped.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[start:at]


def refusals(source: pathlib.Path = SOURCE) -> list[tuple[str, str]]:
    """Returns (place, text) of each error."""
    found = []
    for product in PRODUCTS:
        for path in sorted((source / product).rglob("*")):
            if path.suffix not in (".h", ".cc", ".py"):
                continue
            text, python = path.read_text(), path.suffix == ".py"
            literal = LITERAL[".py" if python else ".cc"]
            for call in (PYTHON if python else CPP).finditer(text):
                said = " ".join(each[1:-1] if python else each for each in literal.findall(arguments(text, call.end(), literal)))
                if len(WORD.findall(said)) >= 3:
                    line = text.count("\n", 0, call.start()) + 1
                    found.append((f"{path.relative_to(source)}:{line}", said))
    return found


def without_cure(source: pathlib.Path = SOURCE) -> list[str]:
    return [f"{place}: {text}" for place, text in refusals(source) if not CURE.search(text)]


if __name__ == "__main__":
    print("\n".join(without_cure()))
