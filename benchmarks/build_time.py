"""Measures the processor time of a build of the programs: a full one, and again after edits that affect many files.

  benchmarks/run build-time [--out DIR] [--against REVISION] [--document docs/contributing.md]

Builds the committed tree, with each file compiled separately and with GENESIS_UNITY, and the tree of REVISION, without compiler cache and
tests. The processor time of all compilers and linkers is measured, because wall time depends on the number of processors and on other
load. An edit adds a line to the end of a file, so that everything that includes it is compiled again. Each tree takes about half an hour
on two processors."""

import os
import pathlib
import re
import resource
import subprocess
import tempfile
import time

import machine
import report

PROGRAMS = ("genesisd", "genesis-worker", "genesisctl")
# The first file in each list that exists in the revision is edited.
EDITS = {
    "the jobs' table": ("server/ledger/job_table.h", "server/jobs/job_table.h"),
    "the step": ("trainer/step/train_step.h", "trainer/run/train_step.h"),
    "one source of the server": ("server/jobs/job_manager.cc",),
    "one source of the trainer": ("trainer/step/train_step.cc", "trainer/run/train_step.cc"),
}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Tree:
    """The sources of a revision in a folder of their own."""

    def __init__(self, revision, folder, flags):
        self.folder, self.flags = folder, flags
        archive = subprocess.run(["git", "-C", os.environ["GENESIS_SOURCE"], "archive", revision], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)

    def _run(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env={**os.environ, "CCACHE_DISABLE": "1"})
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def build(self):
        begin = processor_seconds()
        output = self._run("cmake", "--build", "build/release", "--parallel", str(len(os.sched_getaffinity(0))), "--target", *PROGRAMS)
        return {"processor_seconds": processor_seconds() - begin,
                "compiled": len(re.findall(r"^\[.*Building CXX", output, re.MULTILINE))}

    def edit(self, path):
        with path.open("a") as file:
            file.write("// An edit.\n")

    def path(self, paths):
        return next(self.folder / each for each in paths if (self.folder / each).exists())

    def figures(self):
        self._run("cmake", "--preset", "release", *self.flags)
        found = {"everything": self.build()}
        for name, paths in EDITS.items():
            self.edit(self.path(paths))
            found[name] = self.build()
        return found


def table(rows, facts):
    lines = [f"Processor seconds, and files compiled ({facts['date']}, {facts['processor']}):", "",
             "| built after an edit of | " + " | ".join(row["name"] for row in rows) + " |", "| --- |" + " ---: |" * len(rows)]
    for edit in ("everything", *EDITS):
        cells = [f"{row[edit]['processor_seconds']:.0f} s, {row[edit]['compiled']}" for row in rows]
        lines.append(f"| {edit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(words):
    parser = report.parser("build-time", __doc__)
    parser.add_argument("--against", metavar="REVISION", help="another revision of the sources")
    parser.add_argument("--document", type=pathlib.Path, help="page to put the table into")
    options = parser.parse_args(words)
    trees = {"here": ("HEAD", ["-DGENESIS_UNITY=OFF"]), "here, GENESIS_UNITY": ("HEAD", ["-DGENESIS_UNITY=ON"])}
    if options.against:
        trees = {options.against: (options.against, []), **trees}
    found = report.Report("build-time", "Time of a build", machine.facts(date=time.strftime("%Y-%m-%d")), {"programs": " ".join(PROGRAMS)})
    for name, (revision, flags) in trees.items():
        with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
            found.add({"name": name, **Tree(revision, pathlib.Path(folder), flags).figures()})
            print(found.rows[-1], flush=True)
    text = table(found.rows, found.facts)
    found.text("A build", text)
    found.write(options.out)
    if options.document:
        report.document(options.document, "build-time", text)
