"""Cases of exported modules on a GPU."""

import copy

import torch

import machine
import modules
from machine import ON_CUDA, Case, needs_numpy


class Exported(Case):
    """Exported modules train like a loop in Python on the same device and batches."""

    # Autocast leaves other operators in FP32 on CUDA than on the CPU, on which graphs are traced.
    TOLERANCE = {"FP32": 1e-3 if ON_CUDA else 1e-5, "MIXED_BF16": 3e-2, "MIXED_FP16": 3e-2}

    def export(self, module, arrays, loss, precisions):
        import genesis
        import numpy
        numpy.savez(self.folder / "rows.npz", **arrays)
        example = {name: torch.tensor(array[:modules.BATCH]) for name, array in arrays.items()}
        genesis.export(module, example, self.folder / "module.pt2", loss=loss, precisions=precisions)
        return {"model": {"exported": {"path": str(self.folder / "module.pt2")}},
                "dataset": {"arrays": {"path": str(self.folder / "rows.npz")}},
                "training": {"max_steps": modules.STEPS, "batch_size": modules.BATCH,
                             "seed": modules.SEED, "max_grad_norm": -1},
                "precision": {"watchdog": {rule: {"action": "OFF"}
                                           for rule in ("overflow", "divergence", "slowdown")}}}

    def agrees(self, name):
        module, arrays, loss = modules.all_of_them()[name]
        modes = [mode for mode in self.TOLERANCE if mode != "MIXED_FP16" or machine.has_tensor_cores()]
        job = self.export(module, arrays, loss, modes)
        for mode in modes:
            with self.subTest(mode):
                theirs = modules.train(module, arrays, loss, mode)
                ways = {"": ()} | ({" captured": ("--cuda-graphs",)} if ON_CUDA else {})
                for way, flags in ways.items():
                    run = self.train(job, mode, *flags, name=mode + way)
                    if flags:
                        self.assertIn("step: captured in step 4, replayed from then on", run.output)
                    worst = max(abs(a - b) / abs(b) for a, b in zip(run.losses, theirs))
                    self.figure(f"largest relative difference in {mode}{way}", float(f"{worst:.2g}"))
                    self.assertLess(worst, self.TOLERANCE[mode])
                    copy.deepcopy(module).load_state_dict(torch.load(run.checkpoints[-1])["model_state_dict"])

    @needs_numpy
    def test_attention_agrees_with_python(self):
        self.agrees("language")

    @needs_numpy
    def test_masks_and_odd_sizes_agree_with_python(self):
        self.agrees("masked")

    @needs_numpy
    def test_a_skipped_step_spoils_no_buffer(self):
        module = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        generator = torch.Generator().manual_seed(5)
        arrays = {"x": torch.randn(modules.EXAMPLES, 6, generator=generator).numpy(),
                  "label": torch.randint(0, 3, (modules.EXAMPLES,), generator=generator).numpy()}
        job = self.export(module, arrays, lambda net, batch: torch.nn.functional.cross_entropy(net(batch["x"]), batch["label"]), ["FP32"])
        arrays["x"][11] = 3e38  # Overflows in the first product.
        import numpy
        numpy.savez(self.folder / "rows.npz", **arrays)
        for way, flags in ({"eager": ()} | ({"captured": ("--cuda-graphs",)} if ON_CUDA else {})).items():
            with self.subTest(way):
                run = self.train(job, "FP32", *flags, name=way)
                state = torch.load(run.checkpoints[-1])["model_state_dict"]
                self.assertTrue(all(torch.isfinite(tensor).all() for tensor in state.values()))
                applied = sum(not record["skipped"] for record in run.records)
                self.assertEqual(state["1.num_batches_tracked"].item(), applied)
                self.assertLess(applied, modules.STEPS)

    @needs_numpy
    def test_convolutions_and_norms_agree_with_python(self):
        self.agrees("vision")
