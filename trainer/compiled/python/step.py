"""The training step as a function of tensors, and the checks of its package.

The function takes the scale of the loss, the parameters, the buffers and the fields of the batch, each in the order of the description. It
returns the loss and, for each parameter, the gradient of the scaled loss; if the loss does not depend on the parameter, the gradient has
no elements. It may change buffers. make_step of a twin returns it, and trainer/compiled/compiled_step.cc calls the compiled function."""

import base64
import contextlib
import statistics

import torch

# Number of differently rounded copies of the inputs that are tried.
NUDGES = 3
AUTOCAST = {"MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}


class StepError(Exception):
    """The twin or the package does not match the description."""


class LossOf(torch.nn.Module):
    """Calls the twin's loss() in forward(), for functional_call."""

    def __init__(self, twin):
        super().__init__()
        self.twin = twin

    def forward(self, fields, autocast):
        return self.twin.loss(fields, autocast)


class LossTwin:
    """Base class of a twin with a method loss_with(), which computes the loss with given tensors. Autograd computes the gradients."""

    def make_step(self, description):
        parameters = [entry["name"] for entry in description["parameters"]]
        buffers = [entry["name"] for entry in description["buffers"]]
        fields = [entry["name"] for entry in description["fields"]]
        format = AUTOCAST.get(description["mode"])

        def step(scale, *tensors):
            weights = [t.detach().requires_grad_() for t in tensors[:len(parameters)]]
            rest = tensors[len(parameters):]
            batch = dict(zip(fields, rest[len(buffers):]))
            # The trace would turn a cached cast into a constant.
            autocast = (torch.autocast(description["device"], format, cache_enabled=False)
                        if format else contextlib.nullcontext())
            with torch.enable_grad():
                loss = self.loss_with(dict(zip(parameters + buffers, [*weights, *rest[:len(buffers)]])),
                                      batch, autocast)
                gradients = torch.autograd.grad(loss * scale, weights, allow_unused=True)
            return (loss.detach(), *[w.new_empty(0) if g is None else laid_out(g, w)
                                     for g, w in zip(gradients, weights)])

        return step


class BuiltInTwin(LossTwin):
    """The twin of a built-in model, a module of twins/."""

    def __init__(self, twin):
        self._loss = LossOf(twin)
        self.named_parameters, self.named_buffers = twin.named_parameters, twin.named_buffers

    def loss_with(self, tensors, fields, autocast):
        return torch.func.functional_call(
            self._loss, {"twin." + name: tensor for name, tensor in tensors.items()}, (fields, autocast))


def check_twin(twin, description):
    """Raises StepError unless the twin has the parameters and buffers of the description, in the same order."""
    for what, named in (("parameters", twin.named_parameters()), ("buffers", twin.named_buffers())):
        ours = [(name, list(tensor.shape)) for name, tensor in named]
        wanted = [(entry["name"], entry["shape"]) for entry in description[what]]
        if ours != wanted:
            differing = next((pair for pair in zip(ours, wanted) if pair[0] != pair[1]),
                             (f"{len(ours)} of them", f"{len(wanted)} of them"))
            raise StepError(f"the Python twin has other {what} than the worker's model: "
                            f"{differing[0]}; the worker has {differing[1]}")


def laid_out(gradient, weight):
    """Copies the gradient to the strides of the weight if they differ, because the fused optimizers read both linearly."""
    if gradient.stride() == weight.stride():
        return gradient
    if weight.is_contiguous():
        return gradient.contiguous()
    return gradient.contiguous(memory_format=torch.channels_last)


def strided(values, entry):
    tensor = torch.empty_strided(entry["shape"], entry["strides"],
                                 dtype=getattr(torch, entry["type"]))
    return tensor.copy_(values)


def example_field(entry, description, integers):
    type = getattr(torch, entry["type"])
    if type.is_floating_point:
        return strided(torch.rand(entry["shape"]), entry)
    if entry["name"] in integers:
        rows = bytearray(base64.b64decode(integers[entry["name"]]))
        return strided(torch.frombuffer(rows, dtype=type).reshape(entry["shape"]), entry)
    # A field of random numbers that the model would draw itself.
    return strided(torch.randint(description["model"]["radio_unet"]["diffusion_steps"], entry["shape"]), entry)


def example_inputs(twin, description, integers):
    """Returns the inputs of a step: the scale, weights near the initial ones, and a batch.

    No weight and no floating-point field is zero. Fields with lengths, indices or labels come from the dataset (`integers`, by field name),
    because random numbers would be invalid. Floating-point fields are random numbers from 0 to 1."""
    torch.manual_seed(1)
    tensors = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    inputs = [torch.ones(())]
    for entry in description["parameters"]:
        values = tensors[entry["name"]].detach()
        inputs.append(strided(values + 0.05 * torch.randn(values.shape), entry))
    inputs += [strided(tensors[entry["name"]], entry) for entry in description["buffers"]]
    inputs += [example_field(entry, description, integers) for entry in description["fields"]]
    return inputs


def run(step, inputs, description, scale=1.0):
    """Returns loss and gradients, then the parameters and buffers after the step. The inputs are unchanged."""
    tensors = [tensor.clone() for tensor in inputs[1:]]
    torch.manual_seed(2)  # For models that draw random numbers.
    with torch.no_grad():
        outputs = step(torch.tensor(scale), *tensors)
    kept = len(description["parameters"]) + len(description["buffers"])
    return [t.float() for t in (*outputs, *tensors[:kept])]


def nudged(tensor, generator):
    """Replaces each number by the next larger or smaller one of its type, at random.

    Rounding errors of a sum whose terms cancel, such as the input of a layer before a batch norm, appear only if the terms do not all
    change in one direction."""
    if not tensor.is_floating_point():
        return tensor
    way = torch.randint(2, tensor.shape, generator=generator, dtype=tensor.dtype) - 0.5
    return torch.nextafter(tensor, way * float("inf"))


def distance(one, other):
    """Returns the norm of the difference, ignoring elements that are not finite."""
    return (one - other).nan_to_num(0, 0, 0).norm().item()


def typical_error(wanted, reference):
    """Returns the median of the relative errors of the tensors, because the error of a single small tensor depends on chance."""
    errors = [distance(want, true) / size for want, true in zip(wanted, reference)
              if (size := true.norm().item()) > 0]
    return statistics.median(errors or [0.0])


def check_finite(name, want, have, may_be_infinite):
    """Raises StepError unless both tensors are finite. If `may_be_infinite`, both may contain the same infinities in the same places, as
    masks do."""
    finite = want.isfinite()
    if not (may_be_infinite or finite.all()):
        raise StepError(f"the {name} is not finite on a batch of random numbers from 0 to 1, on which a package is compared")
    if not torch.equal(have[~finite], want[~finite]) or not have[finite].isfinite().all():
        raise StepError(f"the package's {name} is not finite where the twin's is")


def check_package(package, step, description, inputs, reference):
    """Raises StepError unless the package's results and its state after the step agree with those of the twin.

    In FP32 they may differ by a multiple of the change that the last bit of the inputs causes, because a gradient whose terms cancel
    consists of rounding errors. In reduced precision, each tensor of the package must be about as near to `reference`, the twin in FP32, as
    the twin's own, with the twin's typical error added.

    Returns:
        The largest difference relative to the tolerance.
    """
    exact = description["mode"] == "FP32"
    parameters, buffers = ([entry["name"] for entry in description[what]]
                           for what in ("parameters", "buffers"))
    gradients = [f"gradient of {name}" for name in parameters]
    names = ["loss", *gradients, *(f"parameter {name}" for name in parameters), *(f"buffer {name}" for name in buffers)]
    worst = 0.0
    for scale in (1.0, 8.0):
        wanted = run(step, inputs, description, scale)
        truth = [true * (scale if 0 < index <= len(gradients) else 1.0)
                 for index, true in enumerate(reference)]
        if exact:
            generator = torch.Generator().manual_seed(3)
            rounded = [run(step, [nudged(tensor, generator) for tensor in inputs], description, scale) for _ in range(NUDGES)]
        else:
            usual = max(typical_error(wanted[1:len(gradients) + 1], truth[1:]), 2.5e-3)
        got = run(package, inputs, description, scale)
        for index, (name, want, have, true) in enumerate(zip(names, wanted, got, truth, strict=True)):
            check_finite(name, want, have, may_be_infinite=index > len(gradients))
            size = true.nan_to_num(0, 0, 0).norm().item()
            if exact:
                error = distance(have, want)
                allowed = 10 * max(distance(each[index], want) for each in rounded) + 1e-4 * size + 1e-7 * scale
            else:
                error = distance(have, true)
                allowed = 2 * (distance(want, true) + usual * size) + 1e-6 * scale
            if not error <= allowed:
                raise StepError(f"the package's {name} differs from the twin's by {error:.3g}; "
                                f"accepted: {allowed:.3g}; without a package the job runs eager")
            worst = max(worst, error / allowed)
    return worst
