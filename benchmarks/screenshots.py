"""Takes the pictures of docs/dashboard.md: real jobs of a daemon of its own, in Chromium.

  benchmarks/run screenshots [--out docs/images]

Needs Chromium and playwright, as the tests of the dashboard do. Look at the pictures before you commit them."""

import argparse
import contextlib
import json
import pathlib
import tempfile

from playwright.sync_api import sync_playwright

import harness

ENVIRONMENT = {"ENABLE_FP16_TRAINING": "true", "GENESIS_PRECISION_CPU_FALLBACK": "emulate", "GENESIS_REHEARSALS_ALLOWED": "true"}
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
LONG_MS = harness.LONG * 1000
PENDULUM = {"model": {"world_model": {"hidden_size": 128, "latent_size": 32}}, "dataset": {"trajectories": {"path": "pendulum.npz"}},
            "optimizer": {"learning_rate": 1e-3}, "checkpoint": {"every_steps": 500}, "evaluation": {"every_steps": 200}}
LANGUAGE = {"model": {"transformer": {"vocabulary_size": 64, "context_length": 32, "layers": 1, "heads": 2, "embedding_size": 32}},
            "dataset": {"synthetic": {"tokens": {"size": 65536}}}, "training": {"max_steps": 400, "batch_size": 16}}
SWEEP = ("--over", "optimizer.learning_rate=1e-4..1e-1:log", "--trials", "8", "--seed", "3", "--halving", "3")


def job(spec, steps, seed=1, **parts):
    training = {**spec.get("training", {}), "max_steps": steps, "seed": seed}
    return {**spec, "training": {"batch_size": 128, **training}, **parts}


def ended_jobs(daemon):
    """Runs the jobs that the pictures show, one after another."""
    jobs = {
        "pendulum-fp32": job(PENDULUM, 1200, precision={"mode": "FP32"}, scheduling={"labels": {"team": "control"}}),
        "pendulum-bf16": job(PENDULUM, 1200, precision={"mode": "MIXED_BF16"}, scheduling={"labels": {"team": "control"}},
                             rehearsals=[{"kind": "NAN", "at_step": 700, "steps": 2}]),
        "pendulum-nan": job(PENDULUM, 1200, seed=2, precision={"mode": "FP32"}, rehearsals=[{"kind": "NAN", "at_step": 300, "steps": 40}])}
    for rate in ("slow", "fast"):
        for seed in (1, 2):
            jobs[f"gpt-{rate}-{seed}"] = job(LANGUAGE, 400, seed, optimizer={"learning_rate": 1e-3 if rate == "slow" else 4e-3},
                                             scheduling={"labels": {"rate": rate}})
    for job_id, spec in jobs.items():
        daemon.train(job_id, spec)
        daemon.wait_for_end(job_id)


class Browser:
    """Chromium, whose screenshots go into a folder."""

    def __init__(self, address, images, chromium):
        self.address, self.images, self.chromium = address, images, chromium

    def take(self, name, path, shown, size=WIDE, scheme="light", prepare=None):
        """Takes a screenshot when the page shows the text `shown`, after the steps `prepare`."""
        with contextlib.closing(self.chromium.new_context(viewport=size, color_scheme=scheme)) as context:
            page = context.new_page()
            page.goto(f"http://{self.address}/{path}")
            page.get_by_text(shown).first.wait_for(timeout=LONG_MS)
            if prepare:
                prepare(page)
            page.wait_for_timeout(2000)  # Until the charts are drawn.
            page.screenshot(path=self.images / f"dashboard-{name}.png")


def take_all(daemon, browser):
    ended_jobs(daemon)
    browser.take("job", "#/jobs/pendulum-bf16", "Succeeded", scheme="dark")
    browser.take("failed", "#/jobs/pendulum-nan", "Failed")
    browser.take("compare", "#/compare?ids=gpt-slow-1,gpt-slow-2,gpt-fast-1,gpt-fast-2", "Compare 4 jobs",
                 prepare=lambda page: page.locator("select", has_text="Mean by").select_option("rate"))
    path = daemon.data_dir / "sweep.yaml"
    path.write_text(json.dumps(job(PENDULUM, 300, evaluation={"every_steps": 50})))
    daemon.ctl("sweep", "-f", path, "--sweep-id", "rates", "--watch", *SWEEP)
    browser.take("sweep", "#/sweeps/rates", "Succeeded")
    daemon.train("cartpole-long", {**job(PENDULUM, 300_000), "dataset": {"trajectories": {"path": "cartpole.npz"}}})
    daemon.train("pendulum-long", job(PENDULUM, 300_000))
    daemon.train("pendulum-next", job(PENDULUM, 20_000))
    for job_id in ("cartpole-long", "pendulum-long"):
        daemon.wait_for_step(job_id, 200)
    browser.take("jobs", "#/", "pendulum-next")
    browser.take("phone", "#/", "pendulum-next", size=PHONE)


def run(words):
    parser = argparse.ArgumentParser(prog="benchmarks/run screenshots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=harness.SOURCE / "docs" / "images", help="folder for the pictures. Default docs/images")
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder, sync_playwright() as playwright, contextlib.ExitStack() as stack:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"])
        stack.callback(chromium.close)
        daemon = harness.Daemon(folder, "--workers-slots", "2", environment=ENVIRONMENT)
        stack.callback(daemon.stop)
        take_all(daemon, Browser(daemon.http, options.out, chromium))
