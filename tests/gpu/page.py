"""Adds reports of a GPU to docs/benchmarks/gpu.md: page.py --data docs/benchmarks/gpu-<device>.json [--date YYYY-MM-DD REPORT.json...]

The reports come from `tests/gpu/run` and `benchmarks/run gpu`, in the order of their creation: the last result of a case or row
counts. They are added to the committed data, from which the page is written."""

import argparse
import ast
import json
import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "benchmarks"))
import gpu_figures  # noqa: E402
import report as reports  # noqa: E402

PAGE = SOURCE / "docs" / "benchmarks" / "gpu.md"
KEPT = ("device", "driver", "torch", "processor", "system")


def add(data, report, date):
    if "cases" in report:
        data["facts"] |= {name: report["facts"][name] for name in KEPT if name in report["facts"]}
        for case in report["cases"]:
            if case["result"] != "not run":
                data["cases"][case["name"]] = {"date": date, **case, "reason": case["reason"].strip()[-300:]}
    else:
        for row in report["rows"]:
            if "ms_per_step" in row or "refused" in row:
                data["rows"][row["name"]] = {"date": date, **row}


def not_run(data):
    """Returns the cases without a result in any report."""
    declared = []
    for file in sorted(pathlib.Path(__file__).parent.glob("*cases.py")):
        for each in ast.parse(file.read_text()).body:
            if isinstance(each, ast.ClassDef):
                declared += [f"{each.name}.{method.name}" for method in each.body
                             if isinstance(method, ast.FunctionDef) and method.name.startswith("test_")]
    return [name for name in declared if name not in data["cases"]]


def summary(data):
    passed, left = sum(case["result"] == "passed" for case in data["cases"].values()), not_run(data)
    text = f"{passed} of {len(data['cases']) + len(left)} cases passed, {len(data['cases']) - passed} failed"
    return f"{text}; not run: {', '.join(f'`{name}`' for name in left)}." if left else f"{text}."


def failed(data):
    """Returns lines of a table of the cases that failed, with their metrics. Cases that passed are only in the data."""
    lines = []
    for name, case in data["cases"].items():
        if case["result"] == "passed":
            continue
        figures = "; ".join(f"{key}: {value}" for key, value in case["figures"].items() if len(str(value)) < 60)
        lines.append(f"| `{name}` | {case['result']}, {case['date']} | {figures.replace('|', '/')} |")
    return ["", "| case | result | figures |", "| --- | --- | --- |", *lines] if lines else []


def steps(data):
    lines = ["| workload, mode | side | ms a step (blocks) | genesis-worker is faster | MFU, of the datasheet's peak | peak memory |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    for row in data["rows"].values():
        if "refused" in row:
            lines.append(f"| {row['workload']}, {row['mode']} | {row['side']} | refused: {row['refused'][:120]} | | | |")
            continue
        time = row["ms_per_step"]
        faster = [f"{row[key]['median']:.2f} times by {side}" for side, key in gpu_figures.FASTER.items() if key in row]
        peak = f"{row['peak_mib']:.0f} MiB" if "peak_mib" in row else ""
        lines.append(f"| {row['workload']}, {row['mode']} | {row['side']} | {time['median']:.2f} ({time['low']:.2f} to {time['high']:.2f}) | "
                     f"{', '.join(faster)} | {100 * row['mfu'].get('datasheet', 0):.0f} % | {peak} |")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--date")
    parser.add_argument("reports", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    data = json.loads(options.data.read_text()) if options.data.exists() else {"facts": {}, "cases": {}, "rows": {}}
    for path in options.reports:
        add(data, json.loads(path.read_text()), options.date)
    options.data.write_text(json.dumps(data, indent=1) + "\n")
    facts = ", ".join(f"{name} {value}" if name in ("driver", "torch") else str(value) for name, value in data["facts"].items())
    reports.document(PAGE, "measured", "\n".join(
        [f"{facts}. {summary(data)}", "", *steps(data), *failed(data)]))


if __name__ == "__main__":
    main()
