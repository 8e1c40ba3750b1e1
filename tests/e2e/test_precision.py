"""Tests what an operator sees of the precision policy: fallback, promotion, incidents, baselines, AUTO."""

import os
import signal
import subprocess

import harness
from harness import spec

OPEN = {"ENABLE_FP16_TRAINING": "true", "GENESIS_PRECISION_CPU_FALLBACK": "emulate"}
DRILL = {**OPEN, "GENESIS_REHEARSALS_ALLOWED": "true"}


def storm(mode="MIXED_FP16", **precision):
    """Returns a job in FP16 that overflows for some steps."""
    job = spec(max_steps=120)
    job["precision"] = {"mode": mode, "loss_scale": 16, "fallbacks": ["FP32"], **precision}
    job["rehearsals"] = [{"kind": "INF", "at_step": 30, "steps": 8}]
    return job


class Precision(harness.DaemonTest):
    def test_an_overflow_storm_falls_back_and_is_promoted_again(self):
        daemon = self.start(environment=DRILL)
        daemon.train("storm", storm(promote_after_steps=30))
        job = daemon.wait_for_end("storm")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        down, up = job["precision_changes"]
        self.assertEqual((down["trigger"], up["trigger"]), ("scale_floor", "promotion"))
        self.assertEqual(down["to"], "PRECISION_MODE_FP32")
        self.assertEqual(up["to"], "PRECISION_MODE_MIXED_FP16")
        self.assertEqual(down["step"], down["resumed_step"])
        self.assertEqual(int(job["progress"]["step"]), 120)
        self.assertEqual(job["incidents"][-1]["parameters"], ["encoder.0.weight"])
        metrics = daemon.get("/metrics")
        self.assertIn('genesis_precision_changes_total{deployment="stable",trigger="scale_floor"} 1',
                      metrics)
        self.assertIn('genesis_precision_changes_total{deployment="stable",trigger="promotion"} 1',
                      metrics)
        self.assertIn('genesis_incidents_total{deployment="stable",rule="scale_floor"} 1', metrics)
        self.assertIn("precision changed from MIXED_FP16 to FP32", daemon.log())
        text = subprocess.run([harness.BIN / "genesisctl", "--server", daemon.grpc, "job", "storm"],
                              capture_output=True, text=True, check=True).stdout
        self.assertIn("MIXED_FP16 to FP32 after step", text)

    def test_a_job_that_fell_back_continues_there_after_a_restart_of_the_daemon(self):
        daemon = self.start(environment=DRILL)
        daemon.train("drained", {**storm(), "training": {"max_steps": 3000, "batch_size": 64}})
        daemon.wait_for_step("drained", 60)
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start(environment=DRILL)
        job = daemon.wait_for_end("drained")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        self.assertEqual(job["precision"]["mode"], "PRECISION_MODE_FP32")
        self.assertIn("fell back from MIXED_FP16", job["precision"]["reason"])
        self.assertEqual(int(job["progress"]["step"]), 3000)

    def test_a_change_is_one_event_however_often_the_job_starts_again(self):
        daemon = self.start(environment=OPEN)
        daemon.train("moved", {**spec(max_steps=10**6), "checkpoint": {"every_steps": 100}, "precision": {"mode": "MIXED_FP16"}})
        daemon.wait_for_step("moved", 50)
        daemon.ctl("precision", "disable", "--running", "next-step")
        harness.wait_for("FP32", lambda: daemon.job("moved")["precision"]["mode"] == "PRECISION_MODE_FP32")
        for _ in range(2):
            step = int(daemon.job("moved")["progress"]["step"])
            os.kill(daemon.busy_worker_pid(), signal.SIGKILL)
            daemon.wait_for_step("moved", step + 300)
        changes = daemon.get_json("/v1/events?filter.job_id=moved&filter.kinds=precision_changed")["events"]
        self.assertEqual([change["precision_changed"]["to"] for change in changes], ["PRECISION_MODE_FP32"])

    def test_rehearsals_are_refused_where_they_are_not_allowed(self):
        daemon = self.start(environment=OPEN)
        refused = daemon.train("storm", storm(), check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("rehearsals.allowed", refused.stderr)

    def test_a_finished_fp32_job_is_what_later_ones_are_compared_with(self):
        daemon = self.start(environment=OPEN)
        fp32 = spec(max_steps=120)
        fp32["precision"] = {"mode": "FP32"}
        daemon.train("reference", fp32)
        daemon.wait_for_end("reference")
        bf16 = spec(max_steps=120)
        bf16["precision"] = {"mode": "MIXED_BF16"}
        daemon.train("compared", bf16)
        job = daemon.wait_for_end("compared")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", job)
        progress = job["progress"]
        self.assertGreater(progress["baseline_loss"], 0)
        self.assertLess(abs(progress["divergence_ratio"]), 0.2)
        # The page shows only running jobs, and none is running.
        self.assertNotIn("genesis_fp32_baseline_loss", daemon.get("/metrics"))
        self.assertEqual(job.get("precision_changes", []), [])

    def test_auto_explains_its_choice_with_figures(self):
        daemon = self.start(environment=OPEN)
        job = spec(max_steps=40)
        job["precision"] = {"mode": "AUTO", "calibration_steps": 6}
        daemon.train("auto", job)
        done = daemon.wait_for_end("auto")
        self.assertEqual(done["state"], "JOB_STATE_SUCCEEDED", done)
        measured = done["precision"]["report"]["calibration"]
        self.assertEqual(measured[0]["mode"], "PRECISION_MODE_FP32")
        self.assertTrue(all(entry["step_seconds"] > 0 and entry["verdict"] for entry in measured))
        self.assertIn("measured over 6 steps", done["precision"]["reason"])
        self.assertNotEqual(done["precision"]["mode"], "PRECISION_MODE_AUTO")

    def test_a_closed_gate_keeps_every_mode_in_fp32(self):
        daemon = self.start(environment={**DRILL, "ENABLE_FP16_TRAINING": "false"})
        for mode in ("AUTO", "FP16", "BF16", "MIXED_FP16", "MIXED_BF16"):
            job = spec(max_steps=5)
            job["precision"] = {"mode": mode}
            name = mode.lower().replace("_", "-")
            daemon.train(name, job)
            done = daemon.wait_for_end(name)
            self.assertEqual(done["precision"]["mode"], "PRECISION_MODE_FP32", done["precision"])
            self.assertTrue(done["precision"]["refused"][0].startswith(mode + ": "))


class Kinds(harness.DaemonTest):
    def test_every_kind_of_model_trains_on_synthetic_data(self):
        daemon = self.start()
        jobs = {
            "transformer": {
                "model": {"transformer": {"vocabulary_size": 32, "context_length": 16, "layers": 2,
                                          "heads": 2, "embedding_size": 32}},
                "dataset": {"synthetic": {"tokens": {"size": 20000}}},
                "training": {"max_steps": 60, "batch_size": 16},
                "optimizer": {"learning_rate": 3e-3}},
            "diffusion": {
                "model": {"radio_unet": {"base_channels": 8, "channel_multipliers": [1, 2]}},
                "dataset": {"synthetic": {"maps": {"maps": 24, "size": 16}}},
                "training": {"max_steps": 20, "batch_size": 4, "max_grad_norm": 0.5},
                "optimizer": {"learning_rate": 1e-3}},
            "rollout": {
                "model": {"world_model": {"hidden_size": 32, "latent_size": 16, "dynamics": "GRU",
                                          "ensemble_size": 2, "rollout_steps": 4}},
                "dataset": {"trajectories": {"path": "pendulum.npz"}},
                "training": {"max_steps": 60, "batch_size": 32}},
        }
        for name, job in jobs.items():
            job["evaluation"] = {"every_steps": 20}
            daemon.train(name, job)
        for name in jobs:
            done = daemon.wait_for_end(name)
            self.assertEqual(done["state"], "JOB_STATE_SUCCEEDED", done)
            self.assertGreater(done["evaluation"]["loss"], 0)
            self.assertIn("held_out_loss", done["latest_checkpoint"])
        self.assertIn("perplexity", daemon.job("transformer")["evaluation"]["metrics"])


if __name__ == "__main__":
    harness.unittest.main()
