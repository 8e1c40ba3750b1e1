"""The training loop of genesis-worker in Python and torch, with all modes and optimizers."""

import copy
import fnmatch
import math

import numpy
import torch

import twin

FORMATS = {"FP16": torch.float16, "BF16": torch.bfloat16,
           "MIXED_FP16": torch.float16, "MIXED_BF16": torch.bfloat16}


class PureModel(twin.WorldModel):
    """A world model with layers in the format of the weights, and statistics and losses in FP32."""

    def heads(self, observation, action):
        format = self.encoder[0].weight.dtype
        latent = self.encoder(((observation - self.observation_mean) / self.observation_std)
                              .to(format))
        action = ((action - self.action_mean) / self.action_std).to(format)
        following = latent + self.dynamics(torch.cat([latent, action], 1))
        return (self.change_head(following).float(), self.reward_head(following).float(),
                self.done_head(following).float())


def divided(named, groups):
    """Returns the parameters that are in no group, then those of each group. A parameter is in the first group with a matching pattern."""
    lists = [[] for _ in range(len(groups) + 1)]
    for name, parameter in named:
        lists[next((i for i, group in enumerate(groups, 1)
                    if any(fnmatch.fnmatchcase(name, each) for each in group["parameters"])), 0)].append(parameter)
    return lists


def make_optimizer(named, kind="ADAMW", learning_rate=1e-3, weight_decay=None, momentum=0.0,
                   nesterov=False, no_decay_on_norms_and_biases=False, schedule=None, parameter_groups=()):
    del schedule
    decay = weight_decay if weight_decay is not None else (0.01 if kind == "ADAMW" else 0.0)
    parameters = [parameter for _, parameter in named]
    if parameter_groups:
        rest, *others = divided(named, parameter_groups)
        parameters = [{"params": rest}] + [
            {"params": own, "lr": group.get("learning_rate", learning_rate),
             "weight_decay": max(group.get("weight_decay", decay), 0.0)}
            for own, group in zip(others, parameter_groups)]
    elif no_decay_on_norms_and_biases:
        parameters = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
                      {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    if kind == "SGD":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, nesterov=nesterov,
                               weight_decay=decay, fused=True)
    maker = torch.optim.AdamW if kind == "ADAMW" else torch.optim.Adam
    return maker(parameters, lr=learning_rate, weight_decay=decay, fused=True)


def factor(schedule, total):
    """Returns the learning rate factor as a function of the step, as documented in trainer/optim/schedule.h."""
    kind = schedule.get("kind", "CONSTANT")
    if kind == "TABLE":
        steps, factors = zip(*((point["step"], point["factor"]) for point in schedule["points"]))
        return lambda applied: float(numpy.interp(applied, steps, factors))
    warmup = schedule.get("warmup_steps", 0)
    final = schedule.get("final_fraction", 0.0)

    def at(applied):
        if applied < warmup:
            return (applied + 1) / warmup
        x = min((applied - warmup) / max(total - 1 - warmup, 1), 1)
        shape = {"CONSTANT": 1, "LINEAR": 1 - x, "COSINE": (1 + math.cos(math.pi * x)) / 2}[kind]
        return final + (1 - final) * shape

    return at


def train(dataset, mode="FP32", steps=50, batch_size=64, accumulation=1, max_norm=1.0, seed=3,
          optimizer=None, precision=None, ema_decay=None, device="cpu"):
    """Trains the world model. Returns one record per step, like --telemetry, the model, and the average of its weights.

    For another device, call dataset.to(device) first."""
    optimizer = optimizer or {}
    torch.manual_seed(seed)
    pure = mode in ("FP16", "BF16")
    model = (PureModel if pure else twin.WorldModel)(
        dataset.observation.shape[1], dataset.action.shape[1], 32, 16)
    model.to(device)  # The initial weights were drawn on the CPU, as in genesis-worker.
    model.take_statistics(dataset)
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()] if pure \
        else list(model.parameters())
    if pure:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(FORMATS[mode])
    named = list(zip((name for name, _ in model.named_parameters()), masters))
    groups = optimizer.get("parameter_groups", [])
    update = make_optimizer(named, **optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        update, factor(optimizer.get("schedule", {}), steps))
    scaler = torch.amp.GradScaler(
        device, enabled=mode.endswith("FP16") and mode != "BF16",
        init_scale=(precision or {}).get("loss_scale", 65536.0),
        growth_interval=(precision or {}).get("growth_interval", 2000))
    average = copy.deepcopy(masters) if ema_decay else None
    rows = twin.batches(dataset.training_size, batch_size, seed)
    records = []
    for _ in range(steps):
        model.zero_grad()
        update.zero_grad()
        total = 0.0
        for _ in range(accumulation):
            with torch.autocast(device, FORMATS.get(mode), enabled=mode.startswith("MIXED")):
                change, reward, done = model.heads(*inputs(dataset, rows_now := next(rows)))
            loss = loss_of(model, dataset, rows_now, change, reward, done) / accumulation
            scaler.scale(loss).backward()
            total += loss.item()
            if pure:
                for master, parameter in zip(masters, model.parameters()):
                    gradient = parameter.grad.float()
                    master.grad = gradient if master.grad is None else master.grad + gradient
                    parameter.grad = None
        scale = scaler.get_scale()
        scaler.unscale_(update)
        norm = torch.nn.utils.get_total_norm([master.grad for master in masters])
        clipped = [each for each in groups if "max_grad_norm" in each]
        for own, bound in zip(divided(named, clipped), [max_norm] + [each["max_grad_norm"] for each in clipped]):
            torch.nn.utils.clip_grad_norm_(own, bound if bound and bound > 0 else float("inf"))
        rate = schedule.get_last_lr()[0]
        skipped = not bool(torch.isfinite(norm))
        scaler.step(update)
        scaler.update()
        if not skipped:
            schedule.step()
            if average:
                with torch.no_grad():
                    for kept, master in zip(average, masters):
                        kept.lerp_(master, 1 - ema_decay)
        if pure:
            for master, parameter in zip(masters, model.parameters()):
                parameter.data.copy_(master.data)
        records.append({"loss": total, "grad_norm": norm.item(), "loss_scale": scale,
                        "skipped": skipped, "learning_rate": rate})
    return records, masters, average


def inputs(dataset, rows):
    return dataset.observation[rows], dataset.action[rows]


def loss_of(model, dataset, rows, change, reward, done):
    functional = torch.nn.functional
    wanted_change = (dataset.change[rows] - model.change_mean) / model.change_std
    wanted_reward = (dataset.reward[rows] - model.reward_mean) / model.reward_std
    return (functional.mse_loss(change.float(), wanted_change)
            + functional.mse_loss(reward.float(), wanted_reward)
            + functional.binary_cross_entropy_with_logits(done.float(), dataset.done[rows]))
