"""A Python side of `gpu`, or the measurement of the device. peer_process.py starts it: THREADS gpu DEVICE SIDE.

One process serves all workloads and modes, because each start takes seconds of the limited time. The response to a failed request is
{"error": reason}."""

import gc
import importlib.util

import torch

import gpu_workloads
import peer_limits
import python_sides
import workloads

# Sizes of matrix products that fill the device, and seconds for each.
SIZES, SECONDS = {"cpu": (256,), "cuda": (4096, 8192)}, {"cpu": 0.05, "cuda": 0.25}
KINDS = {"FP32": torch.float32, "TF32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}


def allow_tf32(allowed):
    """Sets TF32 for matrix products and convolutions, for which torch has different defaults."""
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def give_memory_back(device):
    """Frees cached device memory, which the other sides need."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


class OnDevice(python_sides.Eager):
    """Eager training with a GradScaler in MIXED_FP16, which also reports peak memory and skipped steps."""

    def __init__(self, workload, mode, device):
        allow_tf32(mode == "TF32")
        self.scales = mode == "MIXED_FP16"
        super().__init__(workload, mode, device)

    def synchronize(self):
        synchronize(self.device)

    def reset(self):
        super().reset()
        self.scaler = torch.amp.GradScaler(self.device, enabled=self.scales)

    def step(self, fields):
        if not self.scales:
            return super().step(fields)
        self.optimizer.zero_grad()
        loss = self.call(**fields)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), python_sides.CLIP)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def train(self, steps, warm_up):
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        answer = super().train(steps, warm_up)
        # The step counter of the optimizer does not include skipped steps.
        answer["skipped"] = steps - int(next(iter(self.optimizer.state.values()))["step"].item())
        if self.device == "cuda":
            answer["peak_bytes"] = torch.cuda.max_memory_allocated()
        self.optimizer.zero_grad()
        self.clear_optimizer()
        give_memory_back(self.device)
        return answer


class CompiledOnDevice(OnDevice, python_sides.Compiled):
    pass


class Trainer:
    """One side in the workload and mode that were requested last."""

    def __init__(self, kind, device):
        self.kind, self.device, self.key, self.side = kind, device, None, None

    def probe(self):
        """Raises an exception unless this side can run here."""
        if self.kind is CompiledOnDevice:
            torch.compile(lambda x: x + 1)(torch.ones(8, device=self.device))
        return {}

    def train(self, workload, folder, mode, steps, warm_up):
        if self.key != (workload, mode):
            self.key, self.side = None, None
            if self.kind is CompiledOnDevice:
                # Otherwise the compiler counts the graphs of earlier workloads too, and eventually falls back to eager mode.
                torch.compiler.reset()
            give_memory_back(self.device)
            self.side = self.kind(gpu_workloads.by_name(self.device)[workload](folder), mode, self.device)
            self.key = (workload, mode)
        return self.side.train(steps, warm_up)


class Machine:
    """The handler of requests about the device itself."""

    def __init__(self, device):
        self.device = device

    def facts(self):
        found = {"torch": torch.__version__}
        if self.device == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError("torch sees no CUDA device here; look at nvidia-smi, or prove the program "
                                   "with --device cpu")
            found.update({
                "device": torch.cuda.get_device_name(0),
                "compute capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
                "device memory": f"{torch.cuda.mem_get_info(0)[1] / 2**30:.1f} GiB",
                "CUDA of torch": torch.version.cuda, "cuDNN of torch": torch.backends.cudnn.version()})
        found["triton"] = "present" if importlib.util.find_spec("triton") else "absent"
        return found

    def prepare(self, workload, folder):
        made = gpu_workloads.by_name(self.device)[workload](folder)
        return workloads.prepare(made, device="meta")

    def limits(self, formats):
        """Returns the TFLOP/s of the fastest matrix product in each format."""
        found = {}
        for name in formats:
            allow_tf32(name == "TF32")
            with torch.no_grad():
                found[name] = max(peer_limits.matrix_rates(
                    KINDS[name], SIZES[self.device], self.device, seconds=SECONDS[self.device],
                    synchronize=lambda: synchronize(self.device))) / 1e12
            give_memory_back(self.device)
        return found


SIDES = {"torch eager": OnDevice, "torch.compile": CompiledOnDevice}


def handler(device, side):
    """Returns a function that responds to requests {"do": method, argument: value, ...}."""
    served = Machine(device) if side == "machine" else Trainer(SIDES[side], device)

    def answer(request):
        try:
            return getattr(served, request.pop("do"))(**request)
        # Errors of the device, its memory and torch's compiler have no narrower common class.
        except Exception as error:
            return {"error": " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])}

    return answer
