"""Refusals whose text does not say what is accepted or how to fix it.

A refusal is a call of an absl error of the caller's fault (InvalidArgumentError and the like) in C++, or a `raise` of a class
named *Error in Python, with a text of three words or more. A text that is put together elsewhere is not seen.

    python3 tests/house/cures.py        lists them, with file and line
"""

import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# The number of refusals without a cure. It may only fall.
WITHOUT_CURE = 54
PRODUCTS = ("base", "cli", "client", "config", "metrics", "python/src", "replay", "server", "trainer")

CPP = re.compile(r"\babsl::(?:AlreadyExists|FailedPrecondition|InvalidArgument|NotFound|OutOfRange|PermissionDenied|"
                 r"ResourceExhausted|Unauthenticated)Error\(")
PYTHON = re.compile(r"\braise (?:\w+\.)*\w+Error\(")
LITERAL = {".cc": re.compile(r'"((?:[^"\\\n]|\\.)*)"'), ".py": re.compile(r"""f?("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")}
CHARACTER = re.compile(r"'(?:\\.|[^'\\\n])'")
WORD = re.compile(r"[A-Za-z]{2,}")
# The accepted values, a clause after the fault, or a pointer to where the answer is.
CURE = re.compile(r"\baccepted\b|\baccepts\b|\bexpected\b|; |\bdid you mean\b|\bsee \S|\btry again\b|"
                  r": (?:ask|call|check|choose|clamp|draw|export|fill|free|give|install|let|make|mend|name|remove|run|set|use|write) ")


def arguments(text: str, start: int, literal: re.Pattern) -> str:
    """The text from `start` to the bracket that closes the one before it."""
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
    """Place and text of each refusal."""
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
