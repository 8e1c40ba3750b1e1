"""Tests the gauges on which alerts depend: unprotected work, the newest step, free space, quarantine."""

import datetime
import http.client
import os
import time
import unittest

import grpc

import harness

UNPROTECTED = "genesis_unprotected_since_timestamp_seconds"
LAST_STEP = "genesis_last_step_timestamp_seconds"


class OperationalMetrics(harness.DaemonTest):
    def start_with_fake_worker(self, *flags):
        return self.start("--workers-program", str(harness.FAKE_WORKER), *flags)

    def value(self, daemon, name, **labels):
        """Returns the value of a series; None if there is none."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in daemon.get("/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            base, _, rest = series.rstrip("}").partition("{")
            if base == name and wanted <= set(rest.split(",")):
                return float(value)
        return None

    def test_work_is_unprotected_from_the_start_of_an_attempt_until_its_checkpoint(self):
        daemon = self.start_with_fake_worker()
        self.assertIsNone(self.value(daemon, UNPROTECTED))
        self.assertIsNone(self.value(daemon, LAST_STEP))
        before = time.time()
        daemon.train("hold-1", harness.spec())
        daemon.wait_for_step("hold-1", 5)
        began = self.value(daemon, UNPROTECTED)
        self.assertLessEqual(before, began)
        self.assertLessEqual(began, time.time())
        self.assertLessEqual(before, self.value(daemon, LAST_STEP))
        asked = time.time()
        daemon.ctl("checkpoint", "hold-1")
        # The fake worker reports that its checkpoint took 10 ms. Work after the snapshot is not protected by it.
        self.assertGreaterEqual(self.value(daemon, UNPROTECTED), asked - 0.02)
        self.assertLessEqual(self.value(daemon, UNPROTECTED), time.time())
        daemon.ctl("cancel", "hold-1")
        daemon.wait_for_end("hold-1")
        self.assertIsNone(self.value(daemon, UNPROTECTED), "no job runs")
        self.assertIsNotNone(self.value(daemon, LAST_STEP))

    def test_a_job_that_outlives_the_daemon_stays_unprotected_since_then(self):
        daemon = self.start_with_fake_worker()
        daemon.train("survive-1", harness.spec())
        daemon.wait_for_step("survive-1", 5)
        daemon.ctl("checkpoint", "survive-1")
        protected = self.value(daemon, UNPROTECTED)
        daemon.kill()
        daemon = self.start_with_fake_worker()
        daemon.wait_for_step("survive-1", 6)
        self.assertLess(abs(self.value(daemon, UNPROTECTED) - protected), 5)
        daemon.ctl("cancel", "survive-1", "--now")

    def test_requests_that_reach_no_method_are_counted_without_their_names(self):
        daemon = self.start_with_fake_worker()
        host, port = daemon.http.rsplit(":", 1)

        def status(method, path, **headers):
            connection = http.client.HTTPConnection(host, int(port), timeout=harness.LONG)
            connection.request(method, path, headers=headers)
            code = connection.getresponse().status
            connection.close()
            return code

        for method, path, headers, expected in (
                ("GET", "/v1/nothing", {}, 404), ("GET", "/v1", {}, 404), ("GET", "/v1/jobs/a:fly", {}, 404),
                ("DELETE", "/v1/jobs", {}, 405), ("PUT", "/v1/server", {}, 405),
                ("GET", "/v1/jobs", {"Host": "evil.example"}, 403), ("GET", "/", {"Host": "evil.example"}, 403),
                ("GET", "/v1/jobs", {"Origin": "http://evil.example"}, 403),
                ("GET", "/wp-admin", {}, 404), ("GET", "/v1/jobs", {"Transfer-Encoding": "odd"}, 400)):
            def count(code=expected):
                return self.value(daemon, "genesis_requests_total", protocol="http", method="other", code=code) or 0

            before = count()
            self.assertEqual(status(method, path, **headers), expected, path)
            self.assertEqual(count(), before + 1, (method, path))
        healthy = self.value(daemon, "genesis_requests_total", protocol="http", method="ListJobs", code="OK") or 0
        self.assertEqual(status("GET", "/v1/jobs"), 200)
        self.assertEqual(self.value(daemon, "genesis_requests_total", protocol="http", method="ListJobs", code="OK"),
                         healthy + 1)
        with grpc.insecure_channel(daemon.grpc) as channel:
            for name in ("/genesis.training.v1.TrainingService/Fly", "/a.B/C", "/x y"):
                with self.assertRaises(grpc.RpcError) as caught:
                    channel.unary_unary(name)(b"", timeout=harness.LONG)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
                self.assertIn("there is no method", caught.exception.details())
        self.assertEqual(self.value(daemon, "genesis_requests_total", protocol="grpc", method="other",
                                    code="UNIMPLEMENTED"), 3)

    def test_the_log_is_in_utc_wherever_the_machine_is(self):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), environment={"TZ": "Asia/Kolkata"})
        first = daemon.log().split(" ", 1)[0]
        self.assertTrue(first.endswith("+00:00"), first)
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(first)
        self.assertLess(abs(age.total_seconds()), harness.LONG)

    def test_free_space_is_that_of_the_file_systems(self):
        daemon = self.start_with_fake_worker()
        for volume in ("data", "checkpoints"):
            free = harness.wait_for(f"space of {volume}", lambda: self.value(
                daemon, "genesis_volume_free_bytes", volume=volume))
            size = self.value(daemon, "genesis_volume_size_bytes", volume=volume)
            stat = os.statvfs(self.data_dir)
            # Other processes write to the same file system.
            self.assertLess(abs(free - stat.f_bavail * stat.f_frsize), 0.2 * size)
            self.assertEqual(size, (stat.f_blocks - stat.f_bfree + stat.f_bavail) * stat.f_frsize)

    def test_a_quarantined_device_is_shown(self):
        daemon = self.start_with_fake_worker("--workers-quarantine-failures", "1")
        harness.wait_for("the device", lambda: self.value(
            daemon, "genesis_device_quarantined", device="cpu") == 0)
        daemon.train("device-1", {**harness.spec(), "max_restarts": 0})
        daemon.wait_for_end("device-1")
        harness.wait_for("its quarantine", lambda: self.value(
            daemon, "genesis_device_quarantined", device="cpu") == 1)
        self.assertEqual(self.value(daemon, "genesis_jobs_finished_total", state="failed",
                                    cause="device"), 1)


if __name__ == "__main__":
    unittest.main()
