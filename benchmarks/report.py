"""Options of a benchmark, and its report as JSON, CSV and an HTML page with charts."""

import argparse
import csv
import html
import json
import pathlib
import sys
import time

STYLE = """body { font: 14px/1.4 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; } th, td { border: 1px solid #bbb;
padding: 3px 8px; text-align: left; } pre { background: #f4f4f4; padding: 1em; overflow: auto; }
.refused { color: #a00; }"""


def repeats(text):
    """Parses a number of repetitions for argparse."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"is {text!r}; accepted: a whole number from 2 on, for a spread needs two")
    return int(text)


def parser(name, description, rounds=None):
    """Returns a parser with the common options of benchmarks. `rounds` is the default number of rounds."""
    made = argparse.ArgumentParser(prog=f"benchmarks/run {name}", description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", default=f"benchmark-{name}", help=f"folder for the report. Default benchmark-{name}")
    if rounds:
        made.add_argument("--rounds", type=repeats, default=rounds, help=f"default {rounds}")
    return made


def _flat(row, before=""):
    """Returns {"a": {"b": 1}} as {"a.b": 1}, for a line of CSV."""
    found = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{before}{name}."))
        else:
            found[before + name] = value
    return found


def _shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def document(path, name, text):
    """Puts `text` into a page, between its marks of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    page = path.read_text()
    if begin not in page or end not in page:
        sys.exit(f"{path} has no {begin} and {end} to put the text between")
    before, rest = page.split(begin)
    path.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def cells(text):
    """Returns the rows of a Markdown table, starting with its header."""
    return [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
            for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]


def rows_beside(page, name):
    """Returns the path of the CSV file with the rows of a page's table."""
    return page.parent / "benchmarks" / f"{name}.csv"


def document_with_rows(page, name, text):
    """Puts the sentence above a table, and its rows of medians, into a page, and the whole table into a CSV file."""
    medians = [" ".join(cell for cell in row if cell) for row in cells(text) if row[0].startswith("median")]
    document(page, name, "\n\n".join([text.splitlines()[0], *medians]))
    with rows_beside(page, name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(cells(text))


class Report:
    """Rows of metrics, which write() saves as <folder>/<file>.json, .csv and .html.

    Args:
        name: name of the benchmark.
        title: title of the page.
        facts: metadata of the machine and the versions (machine.facts).
        settings: how it was measured.
        file: name of the files without extension. Default: `name`.

    A row is {"name": ..., metrics}. If it was refused or not run, "refused" or "not_run" has the reason instead of metrics.
    """

    def __init__(self, name, title, facts, settings, file=None):
        self.name, self.title, self.file = name, title, file or name
        self.facts, self.settings = facts, settings
        self.rows, self.charts, self.texts = [], [], []
        self.steadiness = {}
        self.begin = time.time()

    def add(self, row):
        self.rows.append(row)

    def refused(self):
        return [row for row in self.rows if "refused" in row]

    def exit_if_refused(self):
        """Exits with an error if a comparison was refused. Call it after write()."""
        if self.refused():
            sys.exit(f"{len(self.refused())} comparisons were refused; the report says why")

    def chart(self, svg):
        self.charts.append(svg)

    def text(self, title, text):
        """Prints a table or remark, and adds it to the page unchanged."""
        self.texts.append((title, text))
        print(f"\n{title}\n\n{text}", flush=True)

    def _table(self, pairs):
        return "<table>" + "".join(
            f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(_shown(value))}</td></tr>"
            for name, value in pairs.items()) + "</table>"

    def _rows(self):
        flat = [_flat(row) for row in self.rows]
        names = list(dict.fromkeys(name for row in flat for name in row))
        return names, flat

    def _html(self):
        names, flat = self._rows()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f'<tr{" class=refused" if "refused" in row else ""}>'
            + "".join(f"<td>{html.escape(_shown(row.get(name, '')))}</td>" for name in names)
            + "</tr>" for row in flat)
        texts = "".join(f"<h2>{html.escape(title)}</h2><pre>{html.escape(text)}</pre>"
                        for title, text in self.texts)
        return (f"<!doctype html><meta charset=utf-8><title>{html.escape(self.title)}</title>"
                f"<style>{STYLE}</style><h1>{html.escape(self.title)}</h1>"
                f"{''.join(f'<p>{chart}</p>' for chart in self.charts)}{texts}"
                f"<h2>Machine and versions</h2>{self._table(self.facts)}"
                f"<h2>How it was measured</h2>{self._table({**self.settings, **_flat(self.steadiness)})}"
                f"<h2>All figures</h2><table><tr>{head}</tr>{body}</table>\n")

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        whole = {"benchmark": self.name, "title": self.title,
                 "begin": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.begin)),
                 "seconds": round(time.time() - self.begin, 1), "facts": self.facts,
                 "settings": self.settings, "steadiness": self.steadiness, "rows": self.rows,
                 "texts": dict(self.texts)}
        (folder / f"{self.file}.json").write_text(json.dumps(whole, indent=1) + "\n")
        names, flat = self._rows()
        with open(folder / f"{self.file}.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(flat)
        (folder / f"{self.file}.html").write_text(self._html())
        print(f"\n{folder / self.file}.json, .csv and .html")
