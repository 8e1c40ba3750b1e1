"""Tests that modules with recomputation in the backward pass (torch.utils.checkpoint) change buffers and draw numbers as in Python."""

import functools
import unittest

import torch
import twin
from exported_jobs import BATCH, EXAMPLES, STEPS, ExportedJobs
from torch import nn
from torch.utils import checkpoint

import genesis


class Again(nn.Module):
    """A module that recomputes a block with a batch norm, and a dropout before or after it. Recomputation updates the batch norm again."""

    def __init__(self, reentrant=False, first=True, **options):
        super().__init__()
        layers = [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()]
        layers.insert(1 if first else 3, nn.Dropout(0.3))
        self.before, self.block, self.head = nn.Linear(6, 6), nn.Sequential(*layers), nn.Linear(8, 3)
        self.options = {"use_reentrant": reentrant, **options}

    def forward(self, x):
        return self.head(checkpoint.checkpoint(self.block, self.before(x), **self.options))


class InSegments(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.SiLU()) for _ in range(3)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(checkpoint.checkpoint_sequential(self.block, 2, x, use_reentrant=False))


class Untracked(nn.Module):
    """A module that passes a tensor without a gradient to a reentrant block, which then gets no gradient either."""

    def __init__(self):
        super().__init__()
        self.block, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(checkpoint.checkpoint(self.block, x, use_reentrant=True))


class Recomputation(ExportedJobs):
    def compare(self, net):
        job, module = self.job(net)
        records, last, _ = self.train(job)
        data = {name: torch.tensor(self.arrays[name]) for name in ("x", "label")}
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
        rows = twin.batches(EXAMPLES - EXAMPLES // 10, BATCH, 3)
        torch.manual_seed(3)
        self.assertEqual(len(records), STEPS)
        for record in records:
            now = next(rows)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(data["x"][now]), data["label"][now])
            loss.backward()
            optimizer.step()
            self.assertLess(abs(record["loss"] - loss.item()), 1e-5 * loss.item(), record)
        for name, tensor in module.state_dict().items():
            torch.testing.assert_close(last["model_state_dict"][name], tensor, rtol=1e-3, atol=1e-4, msg=name)
        return last["model_state_dict"]

    def test_what_is_computed_again_changes_buffers_as_in_python(self):
        for reentrant in (False, True):
            for first in (False, True):
                with self.subTest(reentrant=reentrant, first=first):
                    state = self.compare(functools.partial(Again, reentrant, first))
                    self.assertEqual(state["block.1.num_batches_tracked" if not first else "block.2.num_batches_tracked"].item(), 2 * STEPS)

    def test_segments(self):
        self.compare(InSegments)

    def test_a_block_that_python_gives_no_gradient_gets_none(self):
        self.compare(Untracked)

    def test_a_context_of_the_callers_is_kept(self):
        entered = []

        class Context:
            def __enter__(self):
                entered.append(self)

            def __exit__(self, *_):
                pass

        genesis.export(Again(context_fn=lambda: (Context(), Context())), self.batch("x"), self.path / "net.pt2", precisions=["FP32"],
                       loss=lambda module, batch: nn.functional.cross_entropy(module(batch["x"]), batch["label"]))
        self.assertGreater(len(entered), 2)

    def test_numbers_that_python_draws_anew_differ(self):
        """With preserve_rng_state=False, recomputation draws new random numbers, in an exported graph too."""
        self.compare(functools.partial(Again, preserve_rng_state=False))


if __name__ == "__main__":
    unittest.main()
