"""The cases that must hold on a GPU, which tests/gpu/run executes. Most of them also run in small sizes on a CPU (--device cpu), which
tests the cases themselves."""

import contextlib
import json
import os
import random
import statistics
import subprocess
import threading
import time
import unittest

import torch

import jobs
import machine
import processor
from exported_cases import Exported  # noqa: F401  unittest finds it by its name in this module.
from machine import DEVICE, ON_CUDA, Case, needs_cuda, needs_numpy
from rank_cases import CapturedRanks, Distributed, LostRanks, Ranks  # noqa: F401

ALL_MODES = ("FP32", "MIXED_FP16", "MIXED_BF16", "FP16", "BF16")
# The modes that the GPU supports in hardware; on a CPU, FP32 and BF16, because emulated FP16 is 20 to 140 times slower.
MODES = tuple(mode for mode in ALL_MODES
              if mode == "FP32" or (mode.endswith("BF16") and machine.has_bf16())
              or (mode.endswith("FP16") and machine.has_tensor_cores()))
ITS_NAME = "cuda:0" if ON_CUDA else "cpu"


class Device(Case):
    def test_device_is_detected_and_reported(self):
        run = self.train(jobs.world_model(steps=5), "FP32")
        first = run.output.split("job job on ", 1)[1].splitlines()[0]
        name = torch.cuda.get_device_name(0) if ON_CUDA else processor.name()
        self.assertEqual(first, f"{ITS_NAME} ({name.strip()})")
        self.figure("reported", first)
        self.figure("seconds until 5 steps were made", round(run.seconds, 2))

    @needs_cuda
    def test_a_worker_without_a_visible_device_says_so_and_uses_the_cpu(self):
        run = machine.Run(jobs.world_model(steps=5), self.folder / "run", "FP32", on_cpu=True)
        self.assertEqual(run.code, 0, run.output)
        self.assertIn("driver is there but shows no usable device", run.output)
        self.assertIn("on cpu (", run.output)


class Modes(Case):
    def trains(self, mode):
        run = self.train(jobs.world_model(), mode)
        applied = [record for record in run.records if not record["skipped"]]
        self.assertGreater(len(applied), 0.9 * len(run.records))
        first, last = self.assert_learned(run, part=0.5)
        self.figure(f"loss of {mode}", f"{first:.4g} -> {last:.4g}")
        return run

    def test_fp32_trains(self):
        self.trains("FP32")

    def test_fp16_operations(self):
        for mode in ("FP16", "MIXED_FP16"):
            with self.subTest(mode):
                run = self.trains(mode)
                self.assertEqual(run.records[0]["loss_scale"], 65536)

    @unittest.skipUnless(machine.has_bf16(), "BF16 needs compute capability 8.0")
    def test_bfloat16_support(self):
        for mode in ("BF16", "MIXED_BF16"):
            with self.subTest(mode):
                run = self.trains(mode)
                self.assertEqual({record["loss_scale"] for record in run.records}, {1})

    def test_mixed_precision_is_as_accurate_as_fp32(self):
        """The final losses may differ by 2 %."""
        job, ends = jobs.small_transformer(), {}
        for mode in [mode for mode in MODES if mode == "FP32" or mode.startswith("MIXED")]:
            run = self.train(job, mode, name=mode)
            ends[mode] = statistics.fmean(run.losses[-10:])
            self.figure(f"final loss of {mode}", round(ends[mode], 5))
        self.assertGreater(len(ends), 1)
        for mode, loss in ends.items():
            self.assertLess(abs(loss - ends["FP32"]) / ends["FP32"], 0.02, ends)

    def test_the_same_seed_gives_the_same_start(self):
        one = self.train(jobs.world_model(steps=20), "FP32", name="one")
        again = self.train(jobs.world_model(steps=20), "FP32", name="again")
        self.assertEqual(one.losses[0], again.losses[0])
        if not ON_CUDA:
            self.assertEqual(one.records, again.records)
        self.figure("equal losses", sum(a == b for a, b in zip(one.losses, again.losses)))


class Layers(Case):
    """Mixed precision trains with various kinds of layers."""

    def runs(self, job):
        for mode in MODES:
            with self.subTest(mode):
                run = self.train(job, mode, name=mode)
                self.assertTrue(all(loss is not None for loss in run.losses))
                first, last = self.assert_learned(run, part=0.97)
                self.figure(f"loss of {mode}", f"{first:.4g} -> {last:.4g}")

    def test_mixed_precision_with_attention_and_layer_norm(self):
        self.runs(jobs.small_transformer())

    def test_mixed_precision_with_convolutions_and_group_norm(self):
        self.runs(jobs.radio_unet("VAE"))

    def test_mixed_precision_with_a_diffusion_unet(self):
        self.runs(jobs.radio_unet("DIFFUSION"))

    def test_mixed_precision_with_recurrent_layers_and_an_ensemble(self):
        self.runs(jobs.world_model(steps=100, dynamics="WORLD_MODEL_DYNAMICS_GRU", ensemble_size=3,
                                   rollout_steps=4))


class Numerics(Case):
    # Maximum relative difference of a loss over 50 steps. On a CPU it is that of tests/interop. On a GPU, both sides may split sums
    # differently.
    TOLERANCE = {"FP32": 1e-4 if ON_CUDA else 1e-5, "MIXED_BF16": 1e-2 if ON_CUDA else 5e-3,
                 "MIXED_FP16": 4e-3 if ON_CUDA else 2e-3, "BF16": 4e-2 if ON_CUDA else 2e-2,
                 "FP16": 1e-2 if ON_CUDA else 5e-3}

    @needs_numpy
    def test_every_mode_agrees_with_python_torch(self):
        import reference_loop
        import twin
        if not ON_CUDA:
            torch.set_num_threads(1)
        dataset = twin.Dataset(twin.TRAJECTORIES / "pendulum.npz").to(DEVICE)
        job = jobs.world_model(steps=50, batch=64, hidden=32)
        job["optimizer"] = {}
        job["precision"] = {"watchdog": {"overflow": {"action": "OFF"}}}
        for mode in [mode for mode in ALL_MODES if machine.has_bf16() or "BF16" not in mode]:
            with self.subTest(mode):
                ours = self.train(job, mode, name=mode).records
                theirs, _, _ = reference_loop.train(dataset, mode, device=DEVICE)
                self.assertEqual(len(ours), len(theirs))
                self.assertEqual([r["skipped"] for r in ours], [r["skipped"] for r in theirs])
                self.assertEqual([r["loss_scale"] for r in ours], [r["loss_scale"] for r in theirs])
                worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(ours, theirs))
                self.figure(f"largest relative difference in {mode}", float(f"{worst:.2g}"))
                self.assertLess(worst, self.TOLERANCE[mode])

    @needs_numpy
    def test_grad_scaler_agrees_bit_for_bit(self):
        import test_grad_scaler
        driver = machine.TESTS / "scaler_driver"
        # A driver without CUDA would compare the CPU with itself.
        unknown = subprocess.run([driver, "cuda:99"], capture_output=True, text=True, input="")
        if unknown.returncode != 2:
            self.skipTest(f"{driver} takes no device; build it again")
        chooser, steps = random.Random(1), 500 if ON_CUDA else 5000
        for settings, rate in (((65536.0, 2.0, 0.5, 200), 0.005), ((1000.0, 1.7, 0.31, 3), 0.2),
                               ((65536.0, 2.0, 0.5, 3), 0.001)):
            script = [int(chooser.random() < rate) for _ in range(steps)]
            done = subprocess.run([driver, ITS_NAME], input=" ".join(map(str, [*settings, *script])),
                                  capture_output=True, text=True, timeout=machine.LONG)
            self.assertEqual(done.returncode, 0, done.stderr)
            wanted = test_grad_scaler.torch_scales(settings, script, DEVICE)
            self.assertEqual(done.stdout.split(), wanted)
            self.figure(f"different scales with {settings}", len(set(wanted)))


class Recovery(Case):
    def test_gradient_overflow_recovery(self):
        job = jobs.world_model(steps=60, batch=64)
        job["rehearsals"] = [{"kind": "INF", "at_step": 20, "steps": 3}]
        run = self.train(job, "MIXED_FP16")
        skipped = [record["step"] for record in run.records if record["skipped"]]
        self.assertEqual([step for step in skipped if step >= 20], [20, 21, 22])
        scales = {record["step"]: record["loss_scale"] for record in run.records}
        self.assertEqual(scales[23], scales[20] / 8)
        self.assert_learned(run, part=0.9)
        self.figure("loss scale", f"{scales[20]:g} -> {scales[23]:g}")

    def test_a_scale_that_is_too_high_finds_its_place(self):
        job = jobs.world_model(steps=60, batch=64)
        job["precision"] = {"loss_scale": 2.0**40, "watchdog": {"overflow": {"action": "OFF"}}}
        run = self.train(job, "MIXED_FP16")
        skipped = sum(record["skipped"] for record in run.records)
        self.assertGreater(skipped, 3)
        self.assertFalse(run.records[-1]["skipped"])
        self.figure("skipped steps", skipped)
        self.figure("loss scale at the end", run.records[-1]["loss_scale"])

    def test_an_overflow_storm_leads_out_of_fp16(self):
        job = jobs.world_model(steps=150, batch=64)
        job["rehearsals"] = [{"kind": "INF", "at_step": 20, "steps": 100}]
        run = machine.Run(job, self.folder / "run", "MIXED_FP16")
        self.assertEqual(run.code, 0, run.output)
        self.assertEqual(run.records[0]["mode"], "MIXED_FP16")
        last = run.records[-1]
        self.assertNotEqual(last["mode"], "MIXED_FP16", run.output)
        self.assertFalse(last["skipped"])
        self.assertLess(last["loss"], run.losses[0])
        self.figure("mode at the end", last["mode"])


    @needs_cuda
    def test_a_batch_that_does_not_fit_is_said(self):
        job = jobs.transformer(layers=8, width=1024, context=1024, batch=2048, steps=5)
        job["dataset"]["synthetic"]["tokens"]["size"] = 3 * 2048 * 1024
        run = machine.Run(job, self.folder / "run", "FP32")
        self.assertNotEqual(run.code, 0, run.output)
        self.assertIn("no memory left: ", run.output)
        self.assertIn("lower training.batch_size", run.output)
        self.figure("said", next(line for line in run.output.splitlines() if "no memory left" in line))


@needs_cuda
class Checkpoints(Case):
    """Training moves between GPU and CPU."""

    def moves(self, first_on_cpu):
        job = jobs.world_model(steps=50, batch=64)
        job["checkpoint"] = {"every_steps": 25}
        whole = self.train(job, "FP32", name="whole", on_cpu=first_on_cpu)
        middle = whole.checkpoints[0]
        rest = self.train(job, "FP32", "--resume", middle, name="rest", on_cpu=not first_on_cpu)
        self.assertEqual([record["step"] for record in rest.records], list(range(26, 51)))
        worst = max(abs(a - b) / b for a, b in zip(rest.losses, whole.losses[25:]))
        self.figure("largest relative difference of a loss after it", float(f"{worst:.2g}"))
        self.assertLess(worst, 1e-3)
        return middle

    def test_a_checkpoint_of_the_gpu_resumes_on_the_cpu(self):
        middle = self.moves(first_on_cpu=False)
        state = torch.load(middle)
        for name, tensor in state["model_state_dict"].items():
            self.assertEqual((tensor.device.type, tensor.dtype), ("cpu", torch.float32), name)
        verified = subprocess.run(["python3", machine.SOURCE / "deploy" / "verify_checkpoint.py",
                                   middle], capture_output=True, text=True)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_a_checkpoint_of_the_cpu_resumes_on_the_gpu(self):
        self.moves(first_on_cpu=True)

    def test_a_checkpoint_in_mixed_fp16_goes_on_in_fp32_on_the_cpu(self):
        job = jobs.world_model(steps=50, batch=64)
        job["checkpoint"] = {"every_steps": 25}
        whole = self.train(job, "MIXED_FP16", name="whole")
        rest = self.train(job, "FP32", "--resume", whole.checkpoints[0], name="rest", on_cpu=True)
        worst = max(abs(a - b) / b for a, b in zip(rest.losses, whole.losses[25:]))
        self.figure("largest relative difference of a loss after it", float(f"{worst:.2g}"))
        self.assertLess(worst, 0.05)


class Steps(Case):
    def test_a_healthy_step_waits_for_no_device(self):
        """The test program counts the values that ten steps of each mode read from the device."""
        done = subprocess.run(
            [machine.TESTS / "trainer_step_tests", "--gtest_filter=*NeverWaitsForTheDevice*"],
            capture_output=True, text=True, timeout=machine.LONG,
            env={**os.environ, "GENESIS_TEST_DEVICE": ITS_NAME})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[  PASSED  ] 1 test.", done.stdout)

    def passes(self, program, *names):
        done = subprocess.run([machine.TESTS / program, *names], capture_output=True, text=True,
                              timeout=machine.LONG)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-3000:])
        self.figure(program, done.stdout.strip().splitlines()[-1].strip("[ ]"))

    def test_unit_tests_of_the_step_pass_on_this_machine(self):
        for program, suites in (("trainer_optim_tests", "*"), ("trainer_run_tests", "RecoveryTest.*:TrainingRunTest.*")):
            with self.subTest(program):
                self.passes(program, f"--gtest_filter={suites}")

    def test_a_trace_shows_the_parts_of_a_step(self):
        job = jobs.world_model(steps=20)
        job["trace"] = {"at_step": 10, "steps": 2}
        self.train(job, "FP32")
        (path,) = (self.folder / "run").glob("*-trace-step-10.json")
        events = json.loads(path.read_text())["traceEvents"]
        names = [event.get("name") for event in events]
        for part in ("forward", "backward", "update"):
            self.assertIn(part, names)
        kernels = sum(event.get("cat") == "kernel" for event in events)
        self.figure("events", len(events))
        self.figure("kernels on the GPU", kernels)
        self.assertEqual(kernels > 0, ON_CUDA)


@needs_cuda
class Graphs(Case):
    """Steps that are captured once and replayed."""

    def repeats(self, job, mode, name):
        anew = self.train(job, mode, name=name + "-anew")
        again = self.train(job, mode, name=name + "-again")
        repeated = self.train(job, mode, "--cuda-graphs", name=name + "-repeated")
        self.assertIn("step: captured in step 4, replayed from then on", repeated.output)
        self.assertEqual([record["skipped"] for record in anew.records],
                         [record["skipped"] for record in repeated.records])

        def differences(run):
            return [abs(a - b) / abs(b) for a, b in zip(run.losses, anew.losses)]

        self.figure(f"largest relative difference of a loss, {name}",
                    float(f"{max(differences(repeated)):.2g}"))
        self.figure(f"the same of two eager runs, {name}", float(f"{max(differences(again)):.2g}"))
        self.figure(f"speed, {name}", round(repeated.samples_per_second()
                                            / anew.samples_per_second(), 2))
        # Atomic additions give other sums in each run, and training amplifies the difference.
        most = 1e-4 if mode == "FP32" else 1e-2
        self.assertLess(max(differences(repeated)[:10]), most)
        self.assertLess(max(differences(repeated)), max(most, 5 * max(differences(again))))

    def test_repeated_steps_train_as_steps_that_are_made_anew(self):
        # A mode without a loss scale, one with it, and one whose weights are rounded copies.
        for mode in [mode for mode in ("FP32", "MIXED_FP16", "BF16") if mode in MODES]:
            with self.subTest(mode):
                job = jobs.world_model(steps=100)
                job["optimizer"]["schedule"] = {"kind": "COSINE", "warmup_steps": 10}
                job["training"]["ema_decay"] = 0.99
                job["training"]["gradient_accumulation_steps"] = 2
                self.repeats(job, mode, mode)

    def test_attention_and_convolutions_can_be_recorded(self):
        for name, job in {"transformer": jobs.small_transformer(),
                          "diffusion": jobs.radio_unet("DIFFUSION")}.items():
            with self.subTest(name):
                self.repeats(job, "MIXED_FP16", name)

    def test_what_differs_from_step_to_step_is_not_captured(self):
        job = jobs.world_model(steps=20)
        job["rehearsals"] = [{"kind": "SPIKE", "at_step": 10}]
        run = self.train(job, "FP32", "--cuda-graphs")
        self.assertIn("step: eager, because rehearsals change single steps", run.output)


@needs_cuda
class Tf32(Case):
    def test_fp32_is_fp32_unless_the_job_says_otherwise(self):
        job = jobs.world_model(steps=20, hidden=512)
        whole = self.train(job, "FP32", name="whole")
        job["precision"] = {"tf32": "ON"}
        rounded = self.train(job, "FP32", name="rounded")
        first = abs(rounded.losses[0] - whole.losses[0]) / whole.losses[0]
        worst = max(abs(a - b) / abs(b) for a, b in zip(rounded.losses, whole.losses))
        self.figure("relative difference of the first loss", float(f"{first:.2g}"))
        self.figure("largest relative difference of a loss", float(f"{worst:.2g}"))
        self.assertEqual(worst > 0, torch.cuda.get_device_capability(0) >= (8, 0))
        # The first losses are compared, with equal weights. Later the runs diverge.
        self.assertLess(first, 1e-3)


@contextlib.contextmanager
def watching(daemon, prefix, seen):
    """Adds lines of /metrics with this prefix to `seen` meanwhile. They exist only while a job runs."""
    done = threading.Event()

    def watch():
        while not done.wait(0.05):
            seen.extend(line for line in daemon.get("/metrics").splitlines() if line.startswith(prefix))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class WithDaemon(Case):
    def start(self):
        import harness
        daemon = harness.Daemon(self.folder / "data", environment={"ENABLE_FP16_TRAINING": "true"})
        self.addCleanup(daemon.stop)
        return daemon

    def finished(self, daemon, name, job, mode):
        job["precision"] = {**job.get("precision", {}), "mode": mode}
        try:
            daemon.train(name, job)
            job = daemon.wait_for_end(name)
        except AssertionError as error:
            said = (daemon.data_dir / "stderr").read_text()[-2000:]
            raise AssertionError(f"{error}\nThe daemon (exit code {daemon.process.poll()}) said:\n{said}")
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED", json.dumps(job)[:3000])
        return job


class Daemon(WithDaemon):
    def test_a_job_from_submission_to_metrics(self):
        daemon = self.start()
        job = jobs.world_model(steps=1000)
        job["dataset"]["trajectories"]["path"] = "pendulum.npz"
        seen = []
        with watching(daemon, "genesis_cuda_memory_allocated_bytes{", seen):
            job = self.finished(daemon, "reduced", job, "MIXED_FP16" if ON_CUDA else "MIXED_BF16")
        precision = job["precision"]
        self.assertEqual(precision["device"], ITS_NAME)
        self.assertEqual(int(job["progress"]["reduced_precision_steps"]), 1000)
        hardware = precision["report"]["hardware"]
        self.figure("hardware", hardware)
        self.figure("TF32 in FP32 products", precision["report"]["tf32"])
        page = daemon.get("/metrics")
        if ON_CUDA:
            major, minor = torch.cuda.get_device_capability(0)
            self.assertIn(f"sm_{major}{minor}", hardware)
            if major >= 7:
                self.assertIn("tensor cores", hardware)
            self.assertTrue(seen, page)
            self.assertIn('mode="fp16"', seen[-1])
            self.assertGreater(float(seen[-1].split()[-1]), 0)
            self.figure("allocated bytes in /metrics", seen[-1].split()[-1])
        else:
            self.assertEqual(seen, [])  # Unmeasured metrics have no series.
        self.assertIn('genesis_fp16_training_steps_total{deployment="stable"} 1000', page)

    def test_auto_measures_and_chooses(self):
        job = self.finished(self.start(), "auto", jobs.small_transformer(), "AUTO")
        self.figure("chosen", job["precision"]["reason"])
        calibration = job["precision"].get("report", {}).get("calibration", [])
        if machine.has_tensor_cores():
            measured = {entry["mode"] for entry in calibration}
            self.assertIn("PRECISION_MODE_FP32", measured)
            self.assertIn("PRECISION_MODE_MIXED_FP16", measured)
        for entry in calibration:
            self.figure(entry["mode"].removeprefix("PRECISION_MODE_"),
                        f"{entry['step_seconds'] * 1e3:.3g} ms, {entry['verdict']}")


@needs_cuda
class Memory(WithDaemon):
    def test_vram_reduction(self):
        """AUTO reports the allocator's peak in each mode for the same job in the same process."""
        job = jobs.large_transformer()
        job["training"]["max_steps"] = 20
        job = self.finished(self.start(), "vram", job, "AUTO")
        peaks = {entry["mode"].removeprefix("PRECISION_MODE_"): int(entry["peak_device_bytes"])
                 for entry in job["precision"]["report"]["calibration"]}
        for mode, peak in peaks.items():
            self.figure(f"peak of {mode}", f"{peak / 2**20:.0f} MiB, "
                        f"{100 * (1 - peak / peaks['FP32']):.1f} % less than FP32")
        mixed = {mode: peak for mode, peak in peaks.items() if mode != "FP32"}
        self.assertTrue(mixed)
        for mode, peak in mixed.items():
            self.assertLess(peak, peaks["FP32"], mode)


class Speed(Case):
    SECONDS = 150 if ON_CUDA else 30

    def test_actual_speedup(self):
        """Measures all modes in turn and reports medians. It fails only if a mode does not train."""
        job, begin = jobs.large_transformer(), time.monotonic()
        rates, memory = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
        rounds = 0
        while rounds < 3:
            for mode in MODES:
                run = self.train(job, mode, name=f"{mode}-{rounds}")
                rates[mode].append(run.samples_per_second())
                memory[mode].append(run.memory)
            rounds += 1
            # Another round starts only if it fits into the limit.
            elapsed = time.monotonic() - begin
            if elapsed * (rounds + 1) / rounds > self.SECONDS:
                break
        self.figure("rounds", rounds)
        fp32 = statistics.median(rates["FP32"])
        for mode, found in rates.items():
            rate = statistics.median(found)
            self.figure(f"samples per second in {mode}",
                        f"{rate:.0f} ({min(found):.0f} to {max(found):.0f}), {rate / fp32:.2f} x FP32")
        if ON_CUDA:
            whole = statistics.median(memory["FP32"])
            for mode, found in memory.items():
                used = statistics.median(found)
                self.figure(f"device memory of the process in {mode}", f"{used / 2**20:.0f} MiB, "
                            f"{100 * (1 - used / whole):.1f} % less than FP32")
