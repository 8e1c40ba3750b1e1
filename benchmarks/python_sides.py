"""The training loops in Python with which genesis-worker is compared. Each trains the same twin from the same weights on the same batches.
Needs torch and numpy."""

import time

import torch

import python_twins
import workloads

CLIP = 1.0
# Autocast formats by mode. Other modes run without autocast.
FORMATS = {"MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}


def autocast(device, format):
    """Returns the autocast context for a format. None computes in the format of the weights."""
    return torch.autocast(device, format or torch.bfloat16, enabled=format is not None)


class Loss(torch.nn.Module):
    """The twin's loss as forward(), so that frameworks can wrap it."""

    def __init__(self, twin, device, format):
        super().__init__()
        self.twin, self.device, self.format = twin, device, format

    def forward(self, **fields):
        return self.twin.loss(fields, autocast(self.device, self.format))


class Eager:
    """The loop of PyTorch's documentation: torch.amp, fused AdamW, clipping."""

    frees_autocast_to_framework = False

    def __init__(self, workload, mode, device="cpu"):
        self.device, self.format = device, FORMATS.get(mode)
        twin = workload.twin()
        self.random = torch.get_rng_state()
        if workload.convolutions:
            twin = twin.to(memory_format=torch.channels_last)
        # Kept in host memory, because device memory is measured.
        self.initial = {"twin." + name: value.clone() for name, value in twin.state_dict().items()}
        self.batch = workload.batch
        self.examples = {name: values.to(device) for name, values in workload.examples().items()}
        self.module = Loss(twin.to(device), device,
                           None if self.frees_autocast_to_framework else self.format)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=workload.learning_rate,
                                           weight_decay=0.01, fused=True)
        self.wrap()

    def wrap(self):
        self.call = self.module

    def reset(self):
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(self.initial[name])
        self.clear_optimizer()
        torch.set_rng_state(self.random)

    def clear_optimizer(self):
        self.optimizer.state.clear()

    def synchronize(self):
        """Waits until the device is idle. Does nothing on a CPU."""

    def step(self, fields):
        self.optimizer.zero_grad()
        loss = self.call(**fields)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), CLIP)
        self.optimizer.step()
        return loss.detach()

    def train(self, steps, warm_up):
        self.reset()
        count = len(next(iter(self.examples.values())))
        batches = python_twins.batches(count, self.batch, workloads.SEED)
        rows = [next(batches).to(self.device) for _ in range(steps)]
        losses, begin = [], None
        for number, chosen in enumerate(rows):
            if number == warm_up:
                self.synchronize()
                begin, used = time.perf_counter(), time.process_time()
            fields = {name: values[chosen] for name, values in self.examples.items()}
            losses.append(self.step(fields))
        self.synchronize()
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        return {"losses": [loss.item() for loss in losses], "seconds": seconds,
                "processor_seconds": used, "steps": steps - warm_up}


class Compiled(Eager):
    """The eager loop with torch.compile around the loss."""

    def wrap(self):
        import torch._inductor.config as inductor
        inductor.fallback_random = True  # Uses the random numbers of eager mode.
        self.call = torch.compile(self.module)


class Fabric(Eager):
    """A loop with Lightning Fabric: setup, backward, clip_gradients."""

    frees_autocast_to_framework = True

    def wrap(self):
        from lightning.fabric import Fabric as Lightning
        self.fabric = Lightning(accelerator="cpu", devices=1,
                                precision="bf16-mixed" if self.format else "32-true")
        self.call, self.stepper = self.fabric.setup(self.module, self.optimizer)

    def step(self, fields):
        self.stepper.zero_grad()
        loss = self.call(**fields)
        self.fabric.backward(loss)
        self.fabric.clip_gradients(self.call, self.stepper, max_norm=CLIP)
        self.stepper.step()
        return loss.detach()


class Accelerate(Eager):
    """A loop with Hugging Face Accelerate: prepare, backward, clip_grad_norm_."""

    frees_autocast_to_framework = True

    def wrap(self):
        from accelerate import Accelerator
        self.accelerator = Accelerator(cpu=True, mixed_precision="bf16" if self.format else "no")
        self.call, self.stepper = self.accelerator.prepare(self.module, self.optimizer)

    def step(self, fields):
        self.stepper.zero_grad()
        loss = self.call(**fields)
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.call.parameters(), CLIP)
        self.stepper.step()
        return loss.detach()


SIDES = {"torch eager": Eager, "torch.compile": Compiled, "Lightning Fabric": Fabric,
         "Accelerate": Accelerate}
