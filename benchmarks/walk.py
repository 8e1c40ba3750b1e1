"""Records the walk of a new user: an own module trained in reduced precision, watched in terminal and browser, rolled back to FP32 while it
trains, compared with another job, and loaded in Python.

  benchmarks/run walk [--out DIR] [--document docs/walk.md] [--images docs/images]

Each command and line is recorded as displayed, with the seconds since the start. --document puts the recording into the page, between its marks,
and --images the screenshots of the dashboard into a folder. Fails if the job is not in FP32 after the rollback, lost a step, or learned nothing.
Needs Chromium and playwright, as the tests of the dashboard do.
"""

import json
import pathlib
import re
import subprocess
import tempfile
import time

import first_module
import machine
import report

BIN, LONGEST = first_module.BIN, first_module.LONGEST
STEPS, ROLLED_BACK = 3000, 800
TRAIN = (f'job = client.train(module, (x, target), loss="cross_entropy", max_steps={STEPS}, batch_size=64, learning_rate=3e-4, precision="MIXED_BF16", '
         'job_id="waves", spec={"evaluation": {"every_steps": 250}, "checkpoint": {"every_steps": 500}})')
OTHER = (f'other = client.train(module, (x, target), loss="cross_entropy", max_steps={STEPS}, batch_size=64, learning_rate=3e-3, job_id="faster", '
         'spec={"evaluation": {"every_steps": 250}})')


class Browser:
    """Chromium, whose screenshots go into a folder and the recording."""

    def __init__(self, walk, images):
        from playwright.sync_api import sync_playwright

        self.walk, self.images = walk, images
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"])
        self.page = self.chromium.new_page(viewport={"width": 1280, "height": 860})

    def close(self):
        self.chromium.close()
        self.playwright.stop()

    def take(self, address, path, name, ready):
        """Takes a screenshot when the page shows the text `ready`."""
        self.page.goto(f"http://{address}/{path}")
        self.page.get_by_text(ready).first.wait_for(timeout=LONGEST * 1000)
        self.page.wait_for_timeout(1500)  # Until the charts are drawn.
        self.images.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.images / f"walk-{name}.png")
        self.walk.say("", f"[browser: http://localhost:8080/{path}, below as walk-{name}.png]")


def job_of(walk, job_id):
    done = subprocess.run([BIN / "genesisctl", "-o", "json", "job", job_id], env=walk.environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def show(walk, *words):
    walk.show(walk.command(*words).rstrip())


def go(folder, images):
    """Returns the recording, and the fraction of the held-out examples that is predicted correctly."""
    walk = first_module.installed(folder)
    daemon, browser = first_module.Daemon(walk, "true"), Browser(walk, images)
    try:
        with first_module.Terminal(walk) as python:
            for line in [*first_module.BEFORE.splitlines(), "client = genesis.Client()", TRAIN]:
                python.type(line)
            first_module.until(lambda: int(job_of(walk, "waves").get("progress", {}).get("step", 0)) > ROLLED_BACK)
            show(walk, "genesisctl", "jobs")
            show(walk, "genesisctl", "plot", "waves")
            browser.take(daemon.addresses[1], "#/jobs/waves", "training", "Running")
            walk.say("", "# Something looks wrong: back to FP32.")
            walk.say("$ ", "kill %1; wait")
            daemon.stop()
            daemon.start("false")
            show(walk, "genesisctl", "watch", "waves")
            job = job_of(walk, "waves")
            show(walk, "genesisctl", "job", "waves")
            browser.take(daemon.addresses[1], "#/jobs/waves", "rolled-back", "Succeeded")
            for line in (OTHER, "other.watch()"):
                python.type(line)
            show(walk, "genesisctl", "compare", "waves", "faster")
            browser.take(daemon.addresses[1], "#/compare?ids=waves,faster", "compared", "Compare 2 jobs")
            for line in ["job.refresh().state", "module.load_state_dict(job.checkpoint().model_state_dict)", *first_module.AFTER.splitlines()]:
                output = python.type(line)
    finally:
        browser.close()
        daemon.stop()
    if job["precision"]["mode"] != "PRECISION_MODE_FP32" or int(job["progress"]["step"]) != STEPS:
        raise AssertionError(f"after the rollback: {job['precision']['mode']}, step {job['progress']['step']}")
    right = float(re.search(r"0\.\d+|1\.0", output)[0])
    if right < 0.9:
        raise AssertionError(f"{right} of what was held out is right:\n" + "\n".join(walk.text))
    return walk.text, right


def run(words):
    parser = report.parser("walk", __doc__)
    parser.add_argument("--document", type=pathlib.Path, help="page to put the recording into")
    parser.add_argument("--images", type=pathlib.Path, help="folder for the screenshots. Default: that of the report")
    options = parser.parse_args(words)
    found = report.Report("walk", "The walk of a new user", machine.facts(date=time.strftime("%Y-%m-%d")), {"programs and torch": "installed before"})
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        lines, right = go(pathlib.Path(folder), options.images or pathlib.Path(options.out))
        lines = [line.replace(folder, "~") for line in lines]
    found.add({"name": "walk", "held out": right})
    text = (f"Recorded by `benchmarks/run walk` ({found.facts['date']}, {found.facts['cores of this process']} cores of {found.facts['processor']}, "
            "programs and torch installed before).\n\n```\n" + "\n".join(lines) + "\n```")
    found.text("The recording", text)
    found.write(options.out)
    if options.document:
        report.document(options.document, "walk", text)
