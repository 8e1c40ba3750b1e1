#!/usr/bin/env python3
"""Prints the manual page of a program: man_page.py PROGRAM SECTION SUMMARY

The text is the output of the program's --help, so that the page always matches the program.
"""

import pathlib
import re
import subprocess
import sys

SEE_ALSO = {"genesisd": "8", "genesisctl": "1", "genesis-worker": "1", "genesis-rollback": "8"}


def escape(line):
    text = line.replace("\\", "\\\\").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def is_heading(line):
    return re.fullmatch(r"\S.*:", line) is not None


def body(help_text):
    """Yields lines of roff. Headings become sections, and other lines keep their layout."""
    yield ".SH DESCRIPTION"
    yield ".nf"
    for line in help_text.rstrip().splitlines():
        if is_heading(line):
            yield ".fi"
            yield f'.SH "{escape(line[:-1].upper())}"'
            yield ".nf"
        else:
            yield escape(line)
    yield ".fi"


def page(name, section, summary, help_text):
    others = [f".BR {escape(other)} ({number})" for other, number in SEE_ALSO.items()
              if other != name]
    return "\n".join([f'.TH "{name.upper()}" "{section}" "" "Genesis trainer"', ".SH NAME",
                      f"{escape(name)} \\- {escape(summary)}", *body(help_text), ".SH SEE ALSO",
                      *[line + "," for line in others[:-1]], others[-1], ""])


if __name__ == "__main__":
    program, page_section, what = sys.argv[1:]
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    name = pathlib.Path(program).name.removesuffix(".sh").replace("rollback", "genesis-rollback")
    sys.stdout.write(page(name, page_section, what, done.stdout))
