"""Runs the cases and writes report.md and report.json: report.py --out DIR --limit SECONDS --jobs N [CASE ...]"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import machine

# Short classes come first, so that the time limit cuts off the measurements.
ORDER = ("Device", "Daemon", "Modes", "Recovery", "Numerics", "Steps", "Tf32", "Graphs", "Exported",
         "Checkpoints", "Ranks", "CapturedRanks", "LostRanks", "Memory", "Layers", "Speed", "Distributed")
# Classes that measure, and so run while no other class does.
ALONE = ("Memory", "Speed")


class Recorder(unittest.TestResult):
    """The results by case: passed, failed, or not run with the reason."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit
        self.begin = time.monotonic()
        self.cases = []
        self.entry = None

    def startTest(self, test):
        super().startTest(test)
        self.entry = {"name": test.id().partition(".")[2], "result": "passed", "reason": "",
                      "seconds": 0.0, "figures": {}}
        self.started = time.monotonic()
        print(f"{self.entry['name']} ... ", end="", flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        self.entry["seconds"] = round(time.monotonic() - self.started, 1)
        self.entry["figures"] = getattr(test, "figures", {})
        self.cases.append(self.entry)
        reason = self.entry["reason"].strip().splitlines()
        print(self.entry["result"] + (f": {reason[-1]}" if reason else ""), flush=True)

    def _fail(self, error):
        text = self._exc_info_to_string(error, self.test)
        self.entry["result"] = "failed"
        self.entry["reason"] += text

    def addFailure(self, test, err):
        self.test = test
        self._fail(err)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.test = subtest
            self.entry["reason"] += f"{subtest._subDescription()}\n"
            self._fail(err)

    def addSkip(self, test, reason):
        if self.entry["result"] == "passed":
            self.entry.update(result="not run", reason=reason)

    def count(self, result):
        return sum(case["result"] == result for case in self.cases)


def each(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from each(part)
        else:
            yield part


class Gathered:
    """The results of several processes, each with the cases of one class, `jobs` at a time.

    `write` is called after each new result, so that an interrupted run leaves a report."""

    def __init__(self, limit, jobs, write):
        self.limit, self.jobs, self.cases = limit, jobs, []
        self._write = write

    def run(self, names):
        groups = {}
        for name in names or ORDER:
            groups.setdefault(name.partition(".")[0], []).append(name)
        beside = [group for name, group in groups.items() if name not in ALONE]
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
                running = [pool.submit(self._cases, folder, group) for group in beside]
                for done in concurrent.futures.as_completed(running):
                    self._add(done.result())
            for name in ALONE:
                if name in groups:
                    self._add(self._cases(folder, groups[name]))

    def _add(self, cases):
        self.cases += cases
        self._write(self)

    def _cases(self, folder, names):
        out = pathlib.Path(folder) / names[0]
        subprocess.run([sys.executable, __file__, "--out", out, "--limit", str(self.limit), "--jobs", "1", *names], check=False)
        report = out / "report.json"
        if report.exists():
            return json.loads(report.read_text())["cases"]
        return [{"name": " ".join(names), "result": "failed", "reason": "its process wrote no report", "seconds": 0.0, "figures": {}}]

    def count(self, result):
        return sum(case["result"] == result for case in self.cases)


def wanted(names):
    loader = unittest.TestLoader()
    if names:
        return list(each(loader.loadTestsFromNames([f"cases.{name}" for name in names])))
    import cases
    there = {name for name, value in vars(cases).items()
             if isinstance(value, type) and any(part.startswith("test_") for part in vars(value))}
    if there != set(ORDER):
        raise SystemExit(f"ORDER leaves out or invents {sorted(there ^ set(ORDER))}")
    return [test for name in ORDER
            for test in each(loader.loadTestsFromTestCase(getattr(cases, name)))]


def run(tests, limit):
    result = Recorder(limit)
    for test in tests:
        if time.monotonic() - result.begin > limit:
            result.startTest(test)
            result.addSkip(test, f"--limit: {limit} s were over before it began")
            result.stopTest(test)
        else:
            test.run(result)
    return result


def markdown(report):
    lines = [f"# {report['facts']['device']}, tested as {report['tested']}", "",
             f"{report['passed']} passed, {report['failed']} failed, {report['not run']} not run, "
             f"in {report['seconds']:.0f} s.", ""]
    lines += [f"- {name}: {value}" for name, value in report["facts"].items()]
    lines += ["", "| case | result | seconds |", "|---|---|---|"]
    for case in report["cases"]:
        why = f": {case['reason']}" if case["result"] == "not run" else ""
        lines.append(f"| {case['name']} | {case['result']}{why} | {case['seconds']} |")
    for case in report["cases"]:
        if case["figures"]:
            lines += ["", f"## {case['name']}", ""]
            lines += [f"- {name}: {value}" for name, value in case["figures"].items()]
        if case["result"] == "failed":
            lines += ["", f"## Failure of {case['name']}", "", "```", case["reason"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if machine.ON_CUDA and not machine.torch.cuda.is_available():
        print("tests/gpu/run: torch sees no CUDA device here; look at nvidia-smi, or run what needs "
              "none with --device cpu", file=sys.stderr)
        return 2
    begin = time.monotonic()
    facts = machine.describe()
    options.out.mkdir(parents=True, exist_ok=True)

    def write(result):
        report = {"tested": machine.DEVICE, "facts": facts,
                  "seconds": round(time.monotonic() - begin, 1), "limit": options.limit, "jobs": options.jobs,
                  **{kind: result.count(kind) for kind in ("passed", "failed", "not run")},
                  "cases": result.cases}
        (options.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
        (options.out / "report.md").write_text(markdown(report))

    if options.jobs > 1:
        result = Gathered(options.limit, options.jobs, write)
        result.run(options.names)
    else:
        result = run(wanted(options.names), options.limit)
    write(result)
    print(f"{result.count('passed')} passed, {result.count('failed')} failed, {result.count('not run')} not run; "
          f"{options.out}/report.md")
    return 1 if result.count("failed") or not result.count("passed") else 0


if __name__ == "__main__":
    sys.exit(main())
