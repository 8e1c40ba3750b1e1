"""Tests checkpoints as files over the API: naming, download, import, deletion; and the example that uses them."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import harness
from api_client import GrpcApi, HttpApi

SPEC = {"model": {"world_model": {}}, "dataset": {"trajectories": {"path": "pendulum.npz"}},
        "training": {"max_steps": 10}}
CONTENT = b"state " + bytes(range(256)) * 12000


class CheckpointFiles(harness.DaemonTest):
    def connect(self, *flags):
        daemon = self.start("--workers-program", str(harness.FAKE_WORKER), *flags)
        grpc_api = GrpcApi(daemon.grpc)
        self.addCleanup(grpc_api.close)
        return daemon, grpc_api, HttpApi(daemon.http, grpc_api)

    def folder(self, daemon):
        return daemon.data_dir / "checkpoints"

    def test_a_download_over_grpc_goes_on_from_any_offset(self):
        _, grpc_api, http_api = self.connect()
        record = http_api.upload("ImportCheckpoint", "mine", CONTENT).response.checkpoint
        for offset in (0, 1, 1 << 20, len(CONTENT) - 1, len(CONTENT)):
            pieces = grpc_api.call("DownloadCheckpoint",
                                   {"checkpoint_id": "mine", "offset": offset}).responses
            self.assertEqual(b"".join(piece.content for piece in pieces), CONTENT[offset:])
            self.assertEqual(pieces[0].checkpoint, record)
            self.assertTrue(all(len(piece.content) <= 1 << 20 for piece in pieces))
            self.assertFalse(any(piece.HasField("checkpoint") for piece in pieces[1:]))

    def test_a_download_over_http_has_length_tag_and_ranges(self):
        _, _, http_api = self.connect()
        record = http_api.upload("ImportCheckpoint", "mine", CONTENT).response.checkpoint
        target = "/v1/checkpoints/mine:download"
        status, headers, body = http_api.exchange("GET", target)
        self.assertEqual((status, body), (200, CONTENT))
        self.assertEqual(headers["content-length"], str(len(CONTENT)))
        self.assertEqual(headers["etag"], f'"crc32c-{record.crc32c:08x}"')
        status, headers, body = http_api.exchange("HEAD", target)
        self.assertEqual((status, body, headers["content-length"]), (200, b"", str(len(CONTENT))))
        for asked, wanted in (("bytes=5-9", CONTENT[5:10]), ("bytes=3000000-", CONTENT[3000000:]),
                              ("bytes=-7", CONTENT[-7:])):
            status, headers, body = http_api.exchange("GET", target, headers={"Range": asked})
            self.assertEqual((status, body), (206, wanted))
            self.assertTrue(headers["content-range"].endswith(f"/{len(CONTENT)}"))
        # The tag belongs to another file, so the whole file is sent.
        status, _, body = http_api.exchange(
            "GET", target, headers={"Range": "bytes=5-9", "If-Range": '"crc32c-00000000"'})
        self.assertEqual((status, body), (200, CONTENT))
        status, _, _ = http_api.exchange("GET", target, headers={"Range": "bytes=9999999-"})
        self.assertEqual(status, 416)

    def test_what_is_not_announced_or_no_checkpoint_leaves_nothing(self):
        daemon, grpc_api, http_api = self.connect()
        import base64
        content = base64.b64encode(b"state").decode()
        for message, part in (
                ({"size_bytes": 6}, "5 bytes were sent"), ({"size_bytes": 4}, "more than size_bytes"),
                ({"size_bytes": 5, "crc32c": 1}, "CRC-32C"), ({"size_bytes": 0}, "size_bytes is 0")):
            answer = grpc_api.call("ImportCheckpoint", [
                {"checkpoint_id": "mine", "content": content, **message}])
            self.assertEqual(answer.code, "INVALID_ARGUMENT", answer)
            self.assertIn(part, answer.text)
        for bad, part in ((b"bad", "mine: is no zip file"), (b"crash", "signal 9")):
            answer = http_api.upload("ImportCheckpoint", "mine", bad)
            self.assertEqual(answer.code, "INVALID_ARGUMENT", answer)
            self.assertIn(part, answer.text)
        self.assertEqual(list(self.folder(daemon).iterdir()), [])
        # The ID is still free.
        self.assertEqual(http_api.upload("ImportCheckpoint", "mine", b"state").code, "OK")
        self.assertEqual(http_api.upload("ImportCheckpoint", "run-1-step-5", b"state").code,
                         "INVALID_ARGUMENT")

    def test_a_sender_that_goes_away_leaves_nothing(self):
        import socket
        daemon, _, http_api = self.connect()
        host, port = daemon.http.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/checkpoints/mine:import HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/octet-stream\r\n"
                           b"Content-Length: 100000\r\n\r\n" + b"state" * 1000)
            harness.wait_for("the first piece", lambda: list(self.folder(daemon).iterdir()))
        harness.wait_for("its end", lambda: not list(self.folder(daemon).iterdir()))
        self.assertEqual(http_api.upload("ImportCheckpoint", "mine", b"state").code, "OK")

    def test_a_link_out_of_the_folder_is_not_followed(self):
        daemon, _, http_api = self.connect()
        record = http_api.upload("ImportCheckpoint", "mine", b"state").response.checkpoint
        os.unlink(record.path)
        secret = daemon.data_dir / "secret"
        secret.write_bytes(b"sesam")
        os.symlink(secret, record.path)
        answer = http_api.call("DownloadCheckpoint", {"checkpoint_id": "mine"})
        self.assertEqual(answer.code, "DATA_LOSS", answer)
        self.assertNotIn("sesam", answer.text)

    def test_a_named_checkpoint_outlives_its_job_and_the_other_name(self):
        daemon, _, http_api = self.connect()
        http_api.call("Train", {"job_id": "hold-1", "spec": SPEC})
        daemon.wait_for_step("hold-1", 5)
        named = http_api.call("Checkpoint", {"job_id": "hold-1", "name": "kept"}).response.checkpoint
        self.assertEqual((named.id, named.name, named.step), ("hold-1-kept", "kept", 5))
        self.assertEqual(os.stat(named.path).st_nlink, 2)
        daemon.ctl("cancel", "hold-1")
        daemon.wait_for_end("hold-1")
        daemon.ctl("checkpoint-delete", "hold-1-step-5")
        self.assertEqual(os.stat(named.path).st_nlink, 1)
        self.assertEqual([c["id"] for c in daemon.ctl("checkpoints")["checkpoints"]],
                         ["hold-1-kept"])
        daemon.ctl("checkpoint-delete", "hold-1-kept")
        self.assertEqual(list(self.folder(daemon).iterdir()), [])

    def test_the_command_line_brings_and_fetches_and_goes_on(self):
        daemon, _, _ = self.connect()
        source = daemon.data_dir / "source.pt"
        source.write_bytes(CONTENT)
        self.assertEqual(daemon.ctl("checkpoint-import", str(source), "--id", "mine")["id"], "mine")
        target = daemon.data_dir / "target.pt"
        # An interrupted command leaves such a file.
        pathlib.Path(f"{target}.part").write_bytes(CONTENT[:1000000])
        daemon.ctl("checkpoint-download", "mine", "-f", str(target))
        self.assertEqual(target.read_bytes(), CONTENT)
        self.assertIn("exists", daemon.ctl("checkpoint-download", "mine", "-f", str(target),
                                           check=False).stderr)
        other = daemon.data_dir / "other.pt"
        pathlib.Path(f"{other}.part").write_bytes(b"not the same")
        refused = daemon.ctl("checkpoint-download", "mine", "-f", str(other), check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("it was removed: repeat", refused.stderr)
        daemon.ctl("checkpoint-download", "mine", "-f", str(other))
        self.assertEqual(other.read_bytes(), CONTENT)

    def test_datasets_on_the_command_line(self):
        daemon, _, _ = self.connect()
        names = [d["name"] for d in daemon.ctl("datasets")["datasets"]]
        self.assertEqual(names, ["cartpole.npz", "pendulum.npz"])
        daemon.ctl("dataset-delete", "cartpole.npz")
        self.assertFalse((daemon.data_dir / "datasets" / "cartpole.npz").exists())


class Example(harness.DaemonTest):
    def test_the_orchestrator_example_trains_a_job(self):
        daemon = self.start()
        spec = daemon.data_dir / "job.json"
        spec.write_text(json.dumps(harness.spec(max_steps=4000)))
        done = subprocess.run(
            [sys.executable, harness.SOURCE / "examples" / "orchestrator.py", daemon.grpc, "run-1",
             spec], capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("run-1: accepted", done.stdout)
        self.assertIn("run-1: training complete, step 4000", done.stdout)
        self.assertRegex(done.stdout, r"checkpoint: run-1-first\n")
        self.assertRegex(done.stdout, r"\d+ steps, overflow rate 0.00%")
        self.assertTrue((self.data_dir_checkpoints(daemon) / "run-1-first.pt").exists())
        lines = (harness.SOURCE / "examples" / "orchestrator.py").read_text().splitlines()
        self.assertLess(len(lines), 60)

    @staticmethod
    def data_dir_checkpoints(daemon):
        return daemon.data_dir / "checkpoints"


if __name__ == "__main__":
    unittest.main()
