"""Tests that the held-out loss equals the loss of all held-out examples together, whatever the loss divides by."""

import json
import tempfile
import unittest
import warnings

import numpy
import tiers
import torch
import twin
from exported_jobs import GATE, ExportedJobs
from torch import nn
from torch.nn import functional

import genesis

ROWS, BATCH, HELD_OUT = 130, 9, 39  # The held-out rows are four batches of 9 and one of 3.
WEIGHTS = torch.tensor([0.25, 1.0, 4.0])


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Counted(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.step += 1
        return self.layers(x)


class OwnLoss(Plain):
    """A module that returns its own loss, like models of transformers. The label -100 is ignored."""

    def forward(self, x, label):
        logits = self.layers(x)
        return {"loss": functional.cross_entropy(torch.stack([logits, -logits], 1).flatten(0, 1), label.flatten(), ignore_index=-100)}


class SevenIgnored(Plain):
    def forward(self, x, label):
        return functional.cross_entropy(self.layers(x), label, ignore_index=-7)


def smoothed(module, batch):
    logits = module(batch["x"])
    return functional.cross_entropy(logits, batch["label"], weight=WEIGHTS, label_smoothing=0.2) * 0.5 + 1e-2 * logits.square().mean()


def masked(module, batch):
    counts = (batch["label"] >= 0).float()
    error = (module(batch["x"])[:, 0] - batch["x"][:, 1]).square()
    return (error * counts).sum() / counts.sum().clamp(min=1)


def mean_masked(module, batch):
    counts = (batch["label"] >= 0).float()
    return 2 - (functional.logsigmoid(module(batch["x"])[:, 2]) * counts).mean() / (counts.mean() + 1e-8)


def both(module, batch):
    logits = module(batch["x"])
    return functional.cross_entropy(logits, batch["label"]) - 0.1 * functional.cross_entropy(logits * 2, batch["label"], WEIGHTS)


def parts_of(module, batch):
    counts = (batch["label"] >= 0).float()
    return (module(batch["x"])[:, 0] - batch["x"][:, 1]).square(), counts


def summed(module, batch):
    return functional.cross_entropy(module(batch["x"]), batch["label"], reduction="sum") / (batch["label"] != -100).sum()


def weighted_logits(module, batch):
    counts = (batch["label"] >= 0).float()
    return functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], (batch["x"][:, 1] > 0).float(), weight=counts,
                                                       reduction="sum") / counts.sum().clamp(min=1)


def smooth(module, batch):
    counts = (batch["label"] >= 0).float()
    return functional.smooth_l1_loss(module(batch["x"])[:, 0] * counts, batch["x"][:, 1] * counts, reduction="sum") / counts.sum().clamp(1)


def counted(module, batch):
    losses, counts = parts_of(module, batch)
    return (losses * counts).sum() / torch.count_nonzero(counts).clamp(min=1)


def where(module, batch):
    losses, counts = parts_of(module, batch)
    number = counts.sum()
    return torch.where(number > 0, (losses * counts).sum() / number.clamp(min=1), 0)


def bounded(module, batch):
    losses, counts = parts_of(module, batch)
    return (losses * counts).sum() / counts.sum().clamp(min=8)


def at_least(module, batch):
    losses, counts = parts_of(module, batch)
    return 3 * (losses * counts).sum() * torch.reciprocal(torch.maximum(counts.sum(), torch.tensor(8.0))) * 0.5


def where_many(module, batch):
    losses, counts = parts_of(module, batch)
    number = counts.sum()
    return torch.where(number > 7, (losses * counts).sum() / number.clamp(min=1), 0)


def reciprocal(module, batch):
    losses, counts = parts_of(module, batch)
    return (losses * counts).sum() * (1 / counts.sum())


def dotted(module, batch):
    losses, counts = parts_of(module, batch)
    return torch.dot(losses, counts) / counts.sum()


def switched_off(module, batch):
    losses, counts = parts_of(module, batch)
    logits = module(batch["x"])
    return logits.square().mean() + torch.where(module.step < 3, (losses * counts).sum() / counts.sum(), 0.0) * 2


def switched_on(module, batch):
    losses, counts = parts_of(module, batch)
    quotient = (losses * counts).sum() / counts.sum().clamp(min=1)
    return torch.where(module.step < 3, 7 * quotient, quotient - functional.cross_entropy(module(batch["x"]), batch["label"]))


def without_nan(module, batch):
    return 3 * torch.nan_to_num(functional.cross_entropy(module(batch["x"]), batch["label"]))


def zero_where_nan(module, batch):
    loss = functional.cross_entropy(module(batch["x"]), batch["label"])
    return torch.where(torch.isnan(loss), torch.zeros_like(loss), loss)


def stacked(module, batch):
    logits = module(batch["x"])
    losses = [functional.cross_entropy(logits, batch["label"]), masked(module, batch), logits.square().mean()]
    return torch.stack(losses).mean() + torch.stack(losses[:2]).sum()


def positives(batch):
    return (batch["label"] == 1).float()


def focal(module, batch):
    """The loss of a detector: negatives count, and the number of positives divides."""
    losses = functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], positives(batch), reduction="none")
    return ((1 - torch.exp(-losses)).square() * losses).sum() / positives(batch).sum().clamp(min=1)


def detector(module, batch):
    output, found = module(batch["x"]), positives(batch)
    number = found.sum() + 1e-6
    return (functional.binary_cross_entropy_with_logits(output[:, 0], found, reduction="sum") / number
            + 5 * (output[:, 1:].abs().sum(1) * found).sum() / number)


def added_before(module, batch):
    output, found = module(batch["x"]), positives(batch)
    number = (found.sum() / 2).clamp(min=1)
    return (functional.binary_cross_entropy_with_logits(output[:, 0], found, reduction="sum") + 5 * (output[:, 1:].abs().sum(1) * found).sum()) / number


def by_levels(module, batch):
    output = module(batch["x"])
    return torch.stack([output[:, level].square().sum() for level in range(3)]).sum() / positives(batch).sum().clamp(min=1)


def guarded(module, batch):
    number = positives(batch).sum()
    total = functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], positives(batch), reduction="sum")
    return torch.where(number > 0, total / number.clamp(min=1), 0)


def of_all(module, batch):
    """The bound is above the number of positives of all batches."""
    total = functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], positives(batch), reduction="sum")
    return total / positives(batch).sum().clamp(min=30) + total * (3 / (torch.maximum(torch.tensor(25.0), positives(batch).sum() - 1) + 2))


def mean_bounded(module, batch):
    losses = functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], positives(batch), reduction="none")
    share = positives(batch).mean()
    return losses.mean() / share.clamp(min=0.4) + functional.mse_loss(module(batch["x"])[:, 0], positives(batch)) / (share + 0.5)


def negative(module, batch):
    return functional.cross_entropy(module(batch["x"]), batch["label"], reduction="sum") / (-positives(batch).sum() - 2)


BOUNDED = focal, detector, added_before, by_levels, guarded, of_all, mean_bounded, negative


def ramped(term):
    """Returns a loss in which the term is inactive at export: its factor is a buffer that is 0."""
    def loss(module, batch):
        return module(batch["x"]).square().mean() + module.step * term(module(batch["x"]), batch)
    loss.__name__ = term.__name__
    return loss


class Gated(Plain):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)


class Steps(nn.Module):
    """Computes with the dimensions of a batch [batch, 4, 6] in several orders."""

    def __init__(self):
        super().__init__()
        self.embed, self.label = nn.Linear(6, 8), nn.Embedding(3, 8)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.recur, self.conv = nn.GRU(8, 8, batch_first=True), nn.Conv1d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.InstanceNorm1d(8), nn.GroupNorm(2, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x, label):
        h = self.embed(x.unflatten(1, (2, 3)).repeat(1, 2, 2)) + self.label(label)[:, None]
        h = self.recur(self.attend(h))[0].transpose(0, 1).contiguous().transpose(0, 1)
        channels = self.conv(h.transpose(1, 2))
        for norm in self.norms:
            channels = norm(channels)
        pooled = functional.max_pool1d(channels, 2).mean(2) + h[torch.arange(h.shape[0]), label] + h.cumsum(1).flip(1).roll(1, 1).amax(1)
        flat = h.reshape(-1, 8)[torch.arange(h.shape[0]) * 4 + label]
        weights = torch.softmax(h.sum(2), 1)
        best = torch.gather(h, 1, h.sum(2).topk(2, 1).indices[..., None].expand(-1, -1, 8)).sum(1) + h.sort(1).values[:, 0]
        return self.head(pooled + flat + (weights[..., None] * h).sum(1) + best + functional.normalize(h[:, 0], dim=1) + h.std(1))


def row_forms():
    """Returns losses that compute with several rows of a batch, inactively in the sample batch, and losses that do not."""
    torch.manual_seed(5)
    fields = {"x": torch.randn(13, 6), "label": torch.arange(13) % 3, "id": torch.arange(13), "y": torch.randn(13, 3)}

    def supervised_contrast(module, batch):
        output = functional.normalize(module(batch["x"]), dim=1)
        itself = torch.eye(output.shape[0], dtype=torch.bool)
        alike = (output @ output.T).masked_fill(itself, -1e9)
        pairs = ((batch["id"][:, None] == batch["id"]) & ~itself).float()
        return -(pairs * (alike - alike.logsumexp(1, keepdim=True))).sum() / pairs.sum().clamp(min=1)

    def hardest(module, batch):
        far = (module(batch["x"])[:, None] - module(batch["x"])).square().sum(2)
        same = batch["id"][:, None] == batch["id"]
        return functional.relu((far * same).amax(1) - far.masked_fill(same, 1e6).amin(1) + 0.2).mean()

    def repelled(module, batch):
        output = module(batch["x"])
        far = (output[:, None] - output).square().sum(2) + 10 * torch.eye(output.shape[0])
        return (output - batch["y"]).square().mean() + functional.relu(1e-9 - far).sum() / output.shape[0]

    def gated(module, batch):
        weights = torch.softmax(module.gate(batch["x"])[:, 0], 0)
        return (weights * (module(batch["x"]) - batch["y"]).square().mean(1)).sum()

    def explained(module, batch):
        return (module(batch["x"]) - batch["y"]).square().sum() / ((batch["y"] - batch["y"].mean(0)).square().sum() + 1e-6)

    def contrast(output, batch):
        logits = functional.normalize(output, dim=1) @ functional.normalize(batch["y"], dim=1).T
        return functional.cross_entropy(logits, torch.arange(output.shape[0]))

    terms = {"contrast": contrast, "softmax": lambda output, batch: (output.softmax(0) * output).mean(),
             "sort": lambda output, batch: (output.sort(0).values - batch["y"].sort(0).values).abs().mean(),
             "cumsum": lambda output, batch: output.cumsum(0).square().mean(), "norm": lambda output, batch: functional.normalize(output, dim=0).abs().mean(),
             "deviation": lambda output, batch: functional.relu(1 - output.std(0)).mean(), "largest": lambda output, batch: output.amax(0).mean(),
             "logsumexp": lambda output, batch: output.logsumexp(0).mean(), "rolled": lambda output, batch: (output * output.roll(1, 0)).mean(),
             "flipped": lambda output, batch: (output * output.flip(0)).mean(),
             "first": lambda output, batch: (output - output[:1]).abs().mean(), "median": lambda output, batch: output.square().mean(1).median(),
             "hard": lambda output, batch: output.square().mean(1).topk(2).values.mean(), "batch_norm":
             lambda output, batch: functional.batch_norm(output, None, None, training=True).abs().mean(), "selected":
             lambda output, batch: (output - output[(torch.arange(output.shape[0]) + 1) % output.shape[0]]).abs().mean(),
             "looked_up": lambda output, batch: (output - output[batch["id"] % output.shape[0]]).abs().mean(),
             "covariance": lambda output, batch: (output.T @ output / output.shape[0]).square().mean(),
             "attention": lambda output, batch: functional.scaled_dot_product_attention(*[output[None, None]] * 3).abs().mean(),
             "row_sums": lambda output, batch: (output @ output.T).relu().sum(1).mean() / output.shape[0]}
    mixing = {"supervised_contrast": (Counted, supervised_contrast, fields), "hardest": (Counted, hardest, fields), "repelled": (Counted, repelled, fields),
              "gated": (Gated, gated, fields), "explained": (Counted, explained, {**fields, "y": torch.ones(13, 3), "x": torch.ones(13, 6)})}
    mixing.update((name, (Counted, ramped(term), fields)) for name, term in terms.items())

    def steps(module, batch):
        return functional.cross_entropy(module(batch["x"], batch["label"]), batch["label"])

    def views(module, batch):
        both, count = module(torch.cat([batch["x"], batch["x"] * 0.9])), batch["x"].shape[0]
        return -functional.cosine_similarity(both[:count], both[count:].detach(), dim=1).mean()

    healthy = {
        "flattened": lambda output, batch: functional.cross_entropy(output[:, None].expand(-1, 4, -1).reshape(-1, 3), batch["label"].repeat_interleave(4)),
        "transposed": lambda output, batch: output.T.reshape(3, -1).square().sum(0).mean(), "weights": lambda output, batch:
        (output.square().mean(1) * (1 + batch["label"])).mean(), "softmax": lambda output, batch: (output.softmax(1) * output).sum(1).mean(),
        "largest": lambda output, batch: output.topk(2, 1).values.logsumexp(1).mean(), "one_hot": lambda output, batch:
        (output * functional.one_hot(batch["label"], 3)).sum(1).mean(), "gathered": lambda output, batch:
        output.log_softmax(1).gather(1, batch["label"][:, None]).mean(), "outer": lambda output, batch:
        torch.einsum("bi,bj->bij", output, output).square().mean(), "products": lambda output, batch:
        (output[:, None] @ output[:, :, None]).abs().mean(), "per_example": lambda output, batch: output.square().sum(1) / output.abs().sum(1),
        "zeros": lambda output, batch: (output - output.new_zeros(3)).abs().mean(), "classes": lambda output, batch: output.square().mean(0).sum(),
        "written": lambda output, batch: torch.zeros_like(output).scatter(1, batch["label"][:, None], output[:, :1]).abs().mean(), "divided":
        lambda output, batch: output.square().sum() / output.shape[0], "centred": lambda output, batch: (output - output.mean(1, keepdim=True)).square().mean()}
    healthy = {name: (Counted, lambda module, batch, term=term: term(module(batch["x"]), batch), fields) for name, term in healthy.items()}
    healthy.update(steps=(Steps, steps, {name: fields[name] for name in ("x", "label")}), views=(Counted, views, fields))
    return {"mixing": mixing, "healthy": healthy}


def own(module, batch):
    return module(**batch)["loss"]


class HeldOutLosses(ExportedJobs):
    def setUp(self):
        super().setUp()
        generator = numpy.random.default_rng(21)
        label = generator.integers(0, 3, ROWS)
        # Batches with fewer labels that count have larger errors, so that the mean of the batches' means differs clearly from the mean.
        x = generator.normal(size=(ROWS, 6)).astype("float32")
        label[-HELD_OUT + 1:-HELD_OUT + 9] = -100
        x[-HELD_OUT] *= 9
        label[-HELD_OUT + 20:-HELD_OUT + 25] = -100
        self.arrays = {"x": x, "label": label}

    def job(self, net, loss, precision="FP32", **sections):
        torch.manual_seed(4)
        module = net()
        fields = {name: torch.tensor(values[70:77]) for name, values in self.arrays.items()}
        if isinstance(loss, str):
            fields["target"] = fields.pop("label")
        genesis.export(module, fields, self.path / "net.pt2", loss=loss, precisions=("FP32",))
        arrays = {"target" if name == "label" and isinstance(loss, str) else name: values for name, values in self.arrays.items()}
        numpy.savez(self.path / "rows.npz", **arrays)
        job = {"model": {"exported": {"path": str(self.path / "net.pt2")}},
               "dataset": {"arrays": {"path": str(self.path / "rows.npz"), "holdout_fraction": HELD_OUT / ROWS}},
               "training": {"max_steps": 6, "batch_size": BATCH, "seed": 3}, "precision": {"mode": precision},
               "evaluation": {"every_steps": 2}, "checkpoint": {"every_steps": 2, "keep_best": 1}}
        for section, values in sections.items():
            job.setdefault(section, {}).update(values)
        path = self.path / "job.yaml"
        path.write_text(json.dumps(job))
        return path, module

    def run_job(self, job):
        """Runs a job. Returns its output, which contains the held-out loss, and its last checkpoint."""
        with tempfile.TemporaryDirectory() as checkpoints:
            _, output = twin.run_worker(job, checkpoints, environment=GATE)
            return output, torch.load(twin.newest_checkpoint(checkpoints))

    def assert_held_out(self, net, loss, in_python):
        job, module = self.job(net, loss)
        output, last = self.run_job(job)
        module.load_state_dict(last["model_state_dict"])
        rows = {name: torch.tensor(values[-HELD_OUT:]) for name, values in self.arrays.items()}
        with torch.no_grad():
            wanted = in_python(module.eval(), rows).item()
        printed = float(output.rsplit("held-out loss ", 1)[1].split()[0].rstrip(","))
        self.assertAlmostEqual(printed / wanted, 1, delta=2e-5)
        return output

    def cases(self):
        plain = lambda module, rows: functional.cross_entropy(module(rows["x"]), rows["label"])
        yield "named", Plain, "cross_entropy", plain
        for loss in (smoothed, masked, mean_masked, both, summed, weighted_logits, smooth, counted, where, bounded, at_least, where_many, reciprocal, dotted,
                     without_nan, zero_where_nan, stacked):
            yield loss.__name__, Plain, loss, loss

    @tiers.nightly
    def test_what_counts_is_added_up(self):
        for name, net, loss, in_python in self.cases():
            with self.subTest(name):
                self.assertNotIn("held-out batches have nothing", self.assert_held_out(net, loss, in_python))

    @tiers.nightly
    def test_a_bound_is_applied_to_the_sum_over_all_batches(self):
        label = self.arrays["label"]
        label[label == -100] = 0
        label[-30:-12] = 2 * (label[-30:-12] == 2)  # Two batches without positives.
        for loss in BOUNDED:
            with self.subTest(loss.__name__):
                self.assertNotIn("held-out batches have nothing", self.assert_held_out(Plain, loss, loss))
        label[-HELD_OUT:] = 0
        with self.subTest("no positives"):
            self.assert_held_out(Plain, focal, focal)

    @tiers.nightly
    def test_losses_that_compute_with_several_rows_are_warned_of(self):
        for kind, forms in row_forms().items():
            for name, (net, loss, fields) in forms.items():
                with self.subTest(name, kind=kind), warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    torch.manual_seed(1)
                    genesis.export(net(), fields, self.path / "net.pt2", loss=loss, precisions=("FP32",))
                    told = [str(each.message) for each in said if "does not add up over batches" in str(each.message)]
                    self.assertEqual(len(told), kind == "mixing", told)
                    for each in told:
                        self.assertRegex(each, r"aten\.\w+\.\w+ (computes with several rows of the batch|takes a value of the whole batch)")

    def test_quotients_of_something_else_are_not_taken(self):
        fields = {"x": torch.tensor(self.arrays["x"][70:82]), "label": torch.ones(12, dtype=torch.int64)}

        def stacked_means(module, batch):
            return torch.stack([each.square().mean() for each in module(batch["x"]).unbind(1)]).sum() / positives(batch).sum()

        def sum_of_means(module, batch):
            return module(batch["x"]).square().mean(0).sum() / positives(batch).sum()

        def bounded_above(module, batch):
            return module(batch["x"]).square().sum() / positives(batch).sum().clamp(min=1, max=1000)

        for loss in stacked_means, sum_of_means, bounded_above:
            with self.subTest(loss.__name__), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                genesis.export(Plain(), fields, self.path / "net.pt2", loss=loss, precisions=("FP32",))
                self.assertEqual(sum("does not add up over batches" in str(each.message) for each in said), 1)

    def test_a_loss_that_does_not_add_up_is_warned_of_at_export(self):
        fields = {name: torch.tensor(values[70:82]) for name, values in self.arrays.items()}
        fields["label"][:3] = -100
        fields["x"][0] *= 9
        for loss, warned in ((lambda module, batch: masked(module, batch).sqrt(), True),
                             (lambda module, batch: torch.stack([masked(module, batch), counted(module, batch)]).amax(), True),
                             (masked, False), (summed, False), (lambda module, batch: module(batch["x"]).square().mean(), False)):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                genesis.export(Plain(), fields, self.path / "net.pt2", loss=loss)
            told = [str(each.message) for each in said if "does not add up over batches" in str(each.message)]
            self.assertEqual(len(told), warned, told)

    def test_a_mask_that_is_full_in_the_sample_batch(self):
        def parts(module, batch):
            return (module(batch["x"])[:, 0] - batch["x"][:, 1]).square(), batch["mask"]

        def share(module, batch):
            losses, mask = parts(module, batch)
            return (losses * (mask / mask.sum())).sum()

        def twice(module, batch):
            losses, mask = parts(module, batch)
            return torch.einsum("i,i->", losses, mask.float()) / (2 * mask.sum())

        def plain(module, batch):
            losses, mask = parts(module, batch)
            return (losses * mask).sum() / mask.sum().clamp(min=1)

        def mean(module, batch):
            losses, mask = parts(module, batch)
            return (losses * mask).mean()

        for kind in (torch.float32, torch.int64, torch.bool):
            for loss, warned in ((share, True), (twice, True), (plain, False), (mean, False)):
                with self.subTest(loss=loss.__name__, kind=kind), warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    fields = {"x": torch.tensor(self.arrays["x"][70:82]), "mask": torch.ones(12, dtype=kind)}
                    genesis.export(Plain(), fields, self.path / "net.pt2", loss=loss, precisions=("FP32",))
                    self.assertEqual(sum("does not add up over batches" in str(each.message) for each in said), warned)

    def test_a_choice_by_a_buffer(self):
        for loss in switched_off, switched_on:
            with self.subTest(loss.__name__):
                self.assert_held_out(Counted, loss, loss)

    def test_a_divisor_of_the_whole_batch_is_warned_of_whatever_the_sample_has(self):
        """The parts of the sample batch add up: it has no missing label and one length, and terms are inactive."""
        def tasks(module, batch):
            mask = (batch["y"] >= 0).float()
            losses = functional.binary_cross_entropy_with_logits(module(batch["x"]), batch["y"], reduction="none")
            return ((losses * mask).sum(0) / mask.sum(0).clamp(min=1)).mean()

        def positions(module, batch):
            mask = (torch.arange(3) < batch["n"][:, None]).float()
            return ((module(batch["x"]).square() * mask).sum(0) / mask.sum(0)).mean()

        def other_condition(module, batch):
            mask = (batch["y"][:, 0] >= 0).float()
            return torch.where(batch["x"].sum() < 1e9, (module(batch["x"])[:, 0].square() * mask).sum() / mask.sum(), 0.0)

        def capped(module, batch):
            return functional.cross_entropy(module(batch["x"]), batch["label"]).clamp(max=20.0)

        def flooded(module, batch):
            return (functional.cross_entropy(module(batch["x"]), batch["label"]) - 0.5).abs() + 0.5

        def free_bits(module, batch):
            return module(batch["x"]).square().mean() + module(batch["x"]).abs().mean().clamp(min=0.1)

        def inverse(module, batch):
            mask = (batch["y"][:, 0] >= 0).float()
            return (module(batch["x"])[:, 0].square() * mask).sum() * mask.sum() ** -1

        def ramped(module, batch):
            return module(batch["x"]).square().mean() + module.step * module(batch["x"]).square().mean().sqrt()

        def centred(module, batch):
            output = module(batch["x"])
            return (output - module.step * output.mean(0)).square().mean()

        def examples(module, batch):
            mask = (torch.arange(3) < batch["n"][:, None]).float()
            return ((module(batch["x"]).square() * mask).sum(1) / mask.sum(1)).mean()

        def size(module, batch):
            return module(batch["x"]).square().sum() / batch["x"].shape[0]

        def weights(module, batch):
            first = module.layers[0].weight
            return (module(batch["x"]) / first.norm()).square().mean() + first.square().sum() / first.abs().sum()

        def condition(module, batch):
            mask = (batch["y"][:, 0] >= 0).float()
            return torch.where(mask.sum() > 0, (module(batch["x"])[:, 0].square() * mask).sum() / mask.sum(), 0.0)

        fields = {"x": torch.tensor(self.arrays["x"][70:82]), "y": torch.ones(12, 3), "n": torch.full((12,), 3),
                  "label": torch.arange(12) % 3}
        for loss, warned in ((tasks, True), (positions, True), (other_condition, True), (capped, True), (flooded, True), (free_bits, True),
                             (inverse, True), (ramped, True), (centred, True), (examples, False), (size, False), (weights, False),
                             (condition, False)):
            with self.subTest(loss.__name__), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                genesis.export(Counted(), fields, self.path / "net.pt2", loss=loss, precisions=("FP32",))
                self.assertEqual(sum("does not add up over batches" in str(each.message) for each in said), warned)

    def test_a_module_with_its_own_loss(self):
        label = self.arrays["label"]
        self.arrays["label"] = numpy.stack([label, numpy.roll(label, 3)], 1)
        self.assert_held_out(OwnLoss, own, own)
        self.arrays["label"] = numpy.where(label == -100, -7, label)
        self.assert_held_out(SevenIgnored, None, lambda module, rows: module(rows["x"], rows["label"]))

    @tiers.nightly
    def test_batches_in_which_nothing_counts(self):
        self.arrays["label"][-HELD_OUT + 9:-HELD_OUT + 18] = -100
        self.arrays["label"][-3:] = -100
        # These losses have a value for such a batch, by a bound or a choice, and so there is nothing to remark.
        defined = {"masked", "mean_masked", "weighted_logits", "smooth", "counted", "where", "bounded", "at_least", "where_many"}
        for name, net, loss, in_python in self.cases():
            with self.subTest(name):
                output = self.assert_held_out(net, loss, in_python)
                remark = "evaluation: step 6: 2 of 5 held-out batches have nothing that counts in the loss"
                self.assertEqual(remark in output, name not in defined, output)

    def test_losses_that_are_means_over_examples(self):
        self.arrays["label"] = abs(self.arrays["label"]) % 3
        for loss in ("cross_entropy", "huber", "mse"):
            with self.subTest(loss):
                if loss != "cross_entropy":
                    self.arrays["label"] = numpy.random.default_rng(5).normal(size=(ROWS, 3)).astype("float32")
                function = {"cross_entropy": functional.cross_entropy, "huber": functional.huber_loss, "mse": functional.mse_loss}[loss]
                self.assert_held_out(Plain, loss, lambda module, rows, f=function: f(module(rows["x"]), rows["label"]))

    def test_nothing_that_is_held_out_counts(self):
        self.arrays["label"][-HELD_OUT:] = -100
        job, _ = self.job(Plain, "cross_entropy", evaluation={"every_steps": 1, "patience": 2})
        output, last = self.run_job(job)
        self.assertEqual(last["genesis"]["step"], 6, "patience does not end it")
        self.assertIn("evaluation: step 6: no held-out example counts in the loss (their labels are ignored", output)

    def test_a_batch_of_training_in_which_no_label_counts(self):
        self.arrays["label"][:60] = -100
        for loss in ("cross_entropy", masked):
            with self.subTest(str(loss)):
                job, _ = self.job(Plain, loss, training={"max_steps": 40, "batch_size": 3})
                output, last = self.run_job(job)
                self.assertEqual(last["genesis"]["step"], 40)
                if loss is not masked:
                    self.assertRegex(output, r"incident \(non_finite\) at step \d+: the loss became nan at step \d+ in FP32; .*verdict: labels "
                                     r"\(no label of the batch counts in the loss\)")
                self.assertNotIn("learning_rate", output)


if __name__ == "__main__":
    unittest.main()
