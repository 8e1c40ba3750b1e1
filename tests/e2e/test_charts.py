"""Tests the charts of the Python client, and the address of the dashboard, with a real daemon."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import signal
import sys
import time
import types
import unittest
import urllib.request
from unittest import mock

import numpy

import genesis
import harness
import secure
import tiers
import test_precision

importlib.import_module("genesis.chart")  # Here, because mock.patch.dict(sys.modules) forgets what is imported inside.


class Address(harness.DaemonTest):
    def test_a_job_and_all_jobs(self):
        daemon = self.start()
        with genesis.Client(daemon.grpc) as client:
            job = client.submit(harness.spec(max_steps=3), job_id="a-b").watch()
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                addresses = [genesis.open(client), genesis.open(job)]
        self.assertEqual(addresses, [f"http://{daemon.http}/#/", f"http://{daemon.http}/#/jobs/a-b"])
        self.assertEqual(said.getvalue().splitlines(), addresses)
        with urllib.request.urlopen(addresses[1]) as page:
            self.assertIn("Genesis", page.read().decode())

    def test_a_code_of_the_caller_that_is_not_its_token(self):
        token, line = secure.new_token("ann", "submitter")
        file = secure.write_secret(pathlib.Path(self.data_dir, "tokens"), line + "\n")
        daemon = self.start("--auth-tokens-file", str(file))
        with genesis.Client(daemon.grpc, token=token) as client, contextlib.redirect_stdout(io.StringIO()):
            link = genesis.open(client)
        self.assertNotIn(token, link)
        page, code = link.split("?login=")
        self.assertEqual(page, f"http://{daemon.http}/#/")
        request = urllib.request.Request(f"http://{daemon.http}/dashboard/session", json.dumps({"code": code}).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            session = json.load(response)["token"]
        with genesis.Client(daemon.grpc, token=session) as browser:
            self.assertEqual(browser.connection.call("GetServerInfo").caller, "ann")

    def test_all_interfaces_are_those_of_the_client(self):
        daemon = self.start("--http-listen", "0.0.0.0:0", "--insecure")
        port = daemon.http.rsplit(":", 1)[1]
        with genesis.Client(daemon.grpc) as client, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(genesis.open(client), f"http://127.0.0.1:{port}/#/")
        self.assertEqual(daemon.ctl("open", "a-b", check=False).stdout, f"http://127.0.0.1:{port}/#/jobs/a-b\n")


class Charts(harness.DaemonTest):
    def setUp(self):
        super().setUp()
        daemon = self.start(environment=test_precision.DRILL)
        self.client = genesis.Client(daemon.grpc)
        self.addCleanup(self.client.close)

    def test_without_matplotlib_or_a_notebook(self):
        job = self.client.submit(harness.spec(max_steps=3)).watch()
        with mock.patch.dict(sys.modules, {"genesis.chart": None}), self.assertRaisesRegex(
                ImportError, "a chart needs matplotlib: .*; install it with: pip install matplotlib"):
            job.plot()
        with self.assertRaisesRegex(genesis.FailedPreconditionError, "chart=True redraws a chart in a notebook, and this is none"):
            job.watch(chart=True)

    def test_what_a_chart_shows(self):
        """A job that falls back to FP32, and loses its worker."""
        spec = test_precision.storm()
        spec["training"]["max_steps"] = 4000
        spec.update(evaluation={"every_steps": 500}, checkpoint={"every_steps": 500})
        job = self.client.submit(spec)
        next(event for event in job.events() if event.step > 1000)
        worker = next(each for each in self.client.workers().workers if each.job_id == job.id)
        os.kill(worker.pid, signal.SIGKILL)
        job.watch()
        chart = job.plot()
        loss, scale, speed = chart.axes
        lines = {line.get_label(): line for line in loss.lines}
        curves = job.curves()
        self.assertEqual(list(lines["loss"].get_xdata()), curves["last_step"])
        self.assertLess(numpy.nanstd(numpy.diff(lines["smoothed"].get_ydata())), numpy.nanstd(numpy.diff(curves["loss"])))
        self.assertEqual(list(lines["held-out loss"].get_xdata())[-1], 4000)
        # The storm lasts from step 30 to 37.
        self.assertIn(lines["precision change"].get_xdata()[0], range(29, 38))
        # From the checkpoint of step 500 if that of 1000 was not written yet.
        self.assertIn(lines["restart"].get_xdata()[0], range(490, 3900))
        self.assertEqual([axes.get_ylabel() for axes in (scale, speed)], ["loss scale", "examples / s"])
        speeds = speed.lines[-1].get_ydata()
        self.assertGreater(numpy.nanmin(speeds), 0)
        self.assertEqual(chart._repr_png_()[:4], b"\x89PNG")

    def test_reported_metrics_have_axes_of_their_own(self):
        job = self.client.submit(harness.spec(max_steps=20)).watch()
        for step, earned in ((20, -3.0), (5, -9.0), (20, -2.5)):
            job.report({"return": earned, "length": 7}, step=step)
        _, length, earned, *_, speed = job.plot().axes
        self.assertEqual([axes.get_ylabel() for axes in (length, earned, speed)], ["length", "return", "examples / s"])
        self.assertEqual([list(data) for data in earned.lines[0].get_data()], [[5, 20], [-9.0, -2.5]])

    @tiers.nightly
    def test_a_chart_in_a_notebook(self):
        """A fake of IPython keeps what is shown."""
        shown = mock.Mock()
        ipython = types.ModuleType("IPython")
        ipython.version_info = (9, 0)  # Read by matplotlib.
        ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        ipython.display = types.SimpleNamespace(display=mock.Mock(return_value=shown))
        with mock.patch.dict(sys.modules, {"IPython": ipython}):
            begin = time.monotonic()
            job = self.client.submit(harness.spec(max_steps=6000))
            self.assertIs(job.watch(chart=True), job)
            seconds = time.monotonic() - begin
        self.assertEqual(job.state, "SUCCEEDED")
        ipython.display.display.assert_called_once_with(mock.ANY, display_id=True)
        self.assertLessEqual(shown.update.call_count, seconds + 1)
        last = shown.update.call_args[0][0]
        self.assertEqual(list(last.axes[0].lines[0].get_xdata()), job.curves(["loss"])["last_step"])


if __name__ == "__main__":
    unittest.main()
