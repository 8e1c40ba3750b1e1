"""Export of an ``nn.Module`` to a file that the trainer runs without Python.

The file holds one graph of ATen operators for each precision (the loss and the gradients of one micro-batch),
one graph of the held-out loss, and the initial weights. docs/exported_modules.md describes it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import io
import json
import logging
import os
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Union

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

from genesis import __version__

__all__ = ["ExportError", "export"]

Loss = Union[None, str, Callable[[torch.nn.Module, Dict[str, torch.Tensor]], torch.Tensor]]

# The first format was also written by exporters whose graphs multiply wrongly (see _scale_by_tensors); no worker reads it.
FORMAT = 2
ROOT = "module"
TARGET = "target"
# Autocast of each precision; the names are those of a job file.
AUTOCAST = {"FP32": None, "MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}
# Element types of a dataset; weights and constants may have two more.
FIELD_TYPES = {getattr(torch, name): name for name in
               ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")}
TYPES = {**FIELD_TYPES, torch.float16: "float16", torch.bfloat16: "bfloat16"}
LOSSES = {"mse": torch.nn.functional.mse_loss, "cross_entropy": torch.nn.functional.cross_entropy,
          "huber": torch.nn.functional.huber_loss}
# A worker runs these, each with all its overloads and in place; of sizes it takes the functions of the module operator.
OPERATORS = frozenset((Path(__file__).parent / "exported_operators.txt").read_text().split())
# How to write a module without some of the others.
EMBEDDING = "write torch.nn.Embedding(...)(indices).sum(1), or mean(1), in place of EmbeddingBag"
WAYS = {"_assert_scalar": "a mask that selects, x[mask], makes a size of values: use torch.where, or multiply by the mask",
        "_embedding_bag": EMBEDDING, "_embedding_bag_forward_only": EMBEDDING,
        "_sparse_coo_tensor_with_dims_and_tensors": "leave out sparse=True"}
# Largest relative difference of the graph and the module, in FP32: sums in another order.
TOLERANCE = 1e-4
# That of a gradient may be as large besides, of the norm of all gradients: half of the last place of float32.
ROUNDING = 2.0 ** -24


class _Tracer:
    """The one place that traces at a time, for tracing changes what torch does in all threads.

    It is the main thread or one that does not end: torch 2.11 keeps, of the first trace, what belongs to its thread, and a trace in
    another thread crashes when that has ended.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "genesis-export")

    def run(self, function: Callable[[], Any]) -> Any:
        with self._turn:
            if threading.current_thread() is threading.main_thread():
                return function()
            return self._thread.submit(function).result()


_tracer = _Tracer()


def _renew_tracer() -> None:
    global _tracer
    _tracer = _Tracer()


if hasattr(os, "register_at_fork"):
    # A child process has none of its parent's threads.
    os.register_at_fork(after_in_child=_renew_tracer)


class ExportError(ValueError):
    """A module that cannot be exported, with what to change."""


def export(module: torch.nn.Module, batch: Mapping[str, torch.Tensor], path: Union[str, Path], loss: Loss = None,
           precisions: Sequence[str] = ("FP32", "MIXED_BF16", "MIXED_FP16")) -> Path:
    """Writes ``module`` with its loss as a ``.pt2`` file for ``model.exported`` of a job file.

    Args:
        module: trained as it is; its mode (train or eval) and weights are left as they are.
        batch: an example of a batch: each field of the dataset with the batch as its first dimension, two examples
            or more. Other batches may have another size.
        path: of the file; ends in ``.pt2``.
        loss: ``None`` where ``module(**batch)`` returns the mean loss, or an object or dict with ``loss``;
            ``"mse"``, ``"cross_entropy"`` or ``"huber"`` of ``module(*fields)`` and the field ``target``; or a
            function of the module and the batch that returns the mean loss, or one loss for each example, a tensor
            [batch], whose mean is trained on, and which prioritized sampling needs.
        precisions: the precisions that the file can be trained in: ``FP32``, ``MIXED_BF16``, ``MIXED_FP16``.

    Returns:
        The path.

    Any thread may call it; one at a time exports. The module must not be trained meanwhile.

    Raises:
        ExportError: the module cannot be exported; the message names the cause.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise ExportError(f"path is {str(path)!r}; accepted: a path that ends in .pt2")
    unknown = [each for each in precisions if each not in AUTOCAST]
    if unknown or "FP32" not in precisions:
        raise ExportError(f"precisions is {list(precisions)!r}; accepted: FP32, and any of "
                          f"{', '.join(each for each in AUTOCAST if each != 'FP32')}")
    _check_module(module)
    _check_batch(batch)
    step = _Step(module, _distinct(module, batch), _loss_function(loss, batch))
    _write(path, step, _tracer.run(lambda: step.programs(precisions)))
    return path


def _check_module(module: torch.nn.Module) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"module is a {type(module).__name__}; accepted: a torch.nn.Module")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.lazy.LazyModuleMixin) and part.has_uninitialized_params():
            raise ExportError(f"{name or 'module'} is lazy and has no shapes yet; run the module on a batch before")
        if isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.track_running_stats and part.momentum is None:
            raise ExportError(f"{name or 'module'} has momentum=None, an average over all batches that no graph can hold; give it a number")


def _check_batch(batch: Mapping[str, torch.Tensor]) -> None:
    if not batch:
        raise ExportError("batch is empty; accepted: a dict of tensors, one for each field of the dataset")
    sizes = {}
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"batch[{name!r}] is a {type(tensor).__name__}; accepted: a torch.Tensor")
        if tensor.dtype not in FIELD_TYPES:
            raise ExportError(f"batch[{name!r}] is of {tensor.dtype}; accepted: {', '.join(map(str, FIELD_TYPES))}")
        if tensor.dim() == 0:
            raise ExportError(f"batch[{name!r}] has no dimensions; accepted: the batch as first dimension")
        sizes[name] = tensor.shape[0]
    if len(set(sizes.values())) > 1:
        raise ExportError(f"the fields of the batch have {sizes} examples; accepted: the same number in each")
    if next(iter(sizes.values())) < 2:
        raise ExportError("the batch has 1 example; accepted: 2 or more, for a size of 1 is a special case to PyTorch")


def _distinct(module: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """The batch, cut to a number of examples that is no other size: a tracer takes equal sizes for the same one."""
    tensors = [*module.parameters(), *module.buffers()]
    others = {size for tensor in tensors for size in tensor.shape} | {size for tensor in batch.values() for size in tensor.shape[1:]}
    most = next(iter(batch.values())).shape[0]
    size = next((size for size in range(most, 1, -1) if size not in others), most)
    return {name: tensor[:size] for name, tensor in batch.items()}


def _loss_function(loss: Loss, batch: Mapping[str, torch.Tensor]):
    if callable(loss):
        return loss
    if loss is None:
        def own(module, fields):
            try:
                result = module(**fields)
            except TypeError as error:
                raise TypeError(f"{error}; without loss=, {type(module).__name__}(**batch) must return it: give loss='cross_entropy', "
                                f"'mse', 'huber' or a function of module and batch, or call its arguments {', '.join(fields)}") from error
            if isinstance(result, Mapping):
                return result["loss"]
            return getattr(result, "loss", result)
        return own
    if loss not in LOSSES:
        raise ExportError(f"loss is {loss!r}; accepted: None, {', '.join(map(repr, LOSSES))}, or a function of the "
                          "module and the batch")
    if TARGET not in batch:
        raise ExportError(f"loss is {loss!r} and batch has no field {TARGET!r}; it has {', '.join(batch)}")
    function = LOSSES[loss]

    def named(module, fields):
        output = module(*(tensor for name, tensor in fields.items() if name != TARGET))
        return function(output.float(), fields[TARGET])
    return named


class _Step:
    """The step of one micro-batch as a function of tensors: scale, fields, parameters, state. Where the loss is one of each
    example, the weights of the examples come behind the fields, and the losses behind the loss."""

    def __init__(self, module: torch.nn.Module, batch: Dict[str, torch.Tensor], loss):
        self.module = module
        self.loss = loss
        self.batch = {name: tensor.detach() for name, tensor in batch.items()}
        named = dict(module.named_parameters())
        self.trained = {name: tensor.detach() for name, tensor in named.items() if tensor.requires_grad}
        if not self.trained:
            raise ExportError(f"{type(module).__name__} has no parameter with requires_grad; there is nothing to train")
        for name, tensor in named.items():
            if tensor.dtype != torch.float32:
                raise ExportError(f"the parameter {name} is of {tensor.dtype}; accepted: torch.float32, as "
                                  "module.float() makes it")
            bad = torch.nonzero(~torch.isfinite(tensor.detach()))
            if len(bad):
                place = bad[0].tolist()
                raise ExportError(f"the parameter {name} is {tensor.detach()[tuple(place)].item()} at {place}; accepted: finite numbers")
        self.state = {name: tensor.detach() for name, tensor in named.items() if not tensor.requires_grad}
        self.state.update({name: tensor.detach() for name, tensor in module.named_buffers()})
        self.frozen = [name for name in named if name not in self.trained]
        kept = module.state_dict().keys()
        self.passing = [name for name in self.state if name not in kept]
        first = {id(tensor): name for name, tensor in named.items()}
        self.tied = {name: first[id(tensor)] for name, tensor in module.named_parameters(remove_duplicate=False)
                     if first[id(tensor)] != name}
        # Tensors that the module makes of numbers, by program: torch.tensor(0.5) in forward.
        self.constants: Dict[str, List[torch.Tensor]] = {}
        # Whether the loss has one value for each example. Trained tensors that the loss depends on, and state that a step
        # changes. See try_eagerly.
        self.by_example = False
        self.gradients: List[str] = []
        self.changed: List[str] = []
        # The ways that are left to try, the fastest first.
        self.traces = (_trace_by_batch, _trace_by_batch_in_python, _trace_by_every_size)

    def arguments(self, batch=None):
        batch = self.batch if batch is None else batch
        # No two alike, so that a check sees them.
        weights = [torch.linspace(0.5, 1.0, len(next(iter(batch.values()))))] if self.by_example else []
        return (torch.tensor(1.0), *batch.values(), *weights, *self.trained.values(), *self.state.values())

    @property
    def inputs(self) -> int:
        """How many arguments have the batch as their first dimension."""
        return len(self.batch) + self.by_example

    def _split(self, tensors):
        fields = self.inputs
        batch = dict(zip(self.batch, tensors[:fields]))
        trained = dict(zip(self.trained, tensors[fields:fields + len(self.trained)]))
        state = dict(zip(self.state, tensors[fields + len(self.trained):]))
        return batch, trained, state

    def _loss_of(self, batch, tensors):
        """One number, or one for each example."""
        holder = _Lossy(self.module, self.loss)
        named = {f"module.{name}": tensor for name, tensor in tensors.items()}
        value = torch.func.functional_call(holder, named, (batch,), tie_weights=True)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            if value.numel() == 1:
                return value.float().reshape(())
            if value.dim() == 1 and value.shape[0] == next(iter(batch.values())).shape[0]:
                return value.float()
        raise ExportError(f"the loss is {_describe(value)}; accepted: one floating-point number, the mean over the batch, or one for each "
                          "example, a tensor [batch]")

    def run(self, precision: str, scale, *tensors):
        """(loss, losses of the examples where they are known, gradients..., changed state...)."""
        loss, losses, gradients, state = self._step(precision, scale, *tensors)
        return (loss, *([losses] if self.by_example else []), *(gradients[name] for name in self.gradients), *(state[name] for name in self.changed))

    def _step(self, precision: str, scale, *tensors):
        batch, trained, state = self._split(tensors)
        trained = {name: tensor.detach().requires_grad_() for name, tensor in trained.items()}
        state = {name: tensor.clone() for name, tensor in state.items()}
        autocast = AUTOCAST[precision]
        with torch.enable_grad(), torch.autocast(scale.device.type, autocast or torch.bfloat16,
                                                 enabled=autocast is not None, cache_enabled=False):
            losses = self._loss_of(batch, {**trained, **state})
            loss = _mean(losses * tensors[len(self.batch)] if self.by_example else losses)
        if not loss.requires_grad:
            raise ExportError("the loss depends on no parameter; torch.no_grad(), detach() or item() is on the way")
        gradients = torch.autograd.grad(loss * scale, list(trained.values()), allow_unused=True)
        return loss.detach(), losses.detach(), dict(zip(trained, gradients)), state

    def evaluate(self, scale, *tensors):
        batch, trained, state = self._split(tensors)
        with torch.no_grad():
            return (_mean(self._loss_of(batch, {**trained, **state})) * scale,)

    @contextlib.contextmanager
    def _kept(self, training: bool):
        """The module in train or eval mode, and drawn numbers without a trace."""
        was_training, random = self.module.training, torch.get_rng_state()
        self.module.train(training)
        # oneDNN's LSTM takes an undefined tensor, which no graph can hold.
        recurrent = any(isinstance(each, torch.nn.RNNBase) for each in self.module.modules())
        try:
            with self._without_onednn() if recurrent else contextlib.nullcontext():
                yield
        finally:
            self.module.train(was_training)
            torch.set_rng_state(random)

    @staticmethod
    @contextlib.contextmanager
    def _without_onednn() -> Iterator[None]:
        with warnings.catch_warnings():
            # It says on the way that there is no Intel GPU.
            warnings.simplefilter("ignore", UserWarning)
            flags = torch.backends.mkldnn.flags(enabled=False)
            flags.__enter__()
        try:
            yield
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                flags.__exit__(None, None, None)

    def try_eagerly(self) -> None:
        """What is wrong with module, batch and loss shows here in their own words, with real sizes."""
        with self._kept(training=True):
            try:
                loss, losses, gradients, state = self._step("FP32", *self.arguments())
                self.by_example = losses.dim() == 1
                if not torch.isfinite(loss):
                    raise ExportError(f"the loss is {loss.item()} on the batch; accepted: a finite number; look for NaN in the batch and "
                                      "the weights")
                self.gradients = [name for name, gradient in gradients.items() if gradient is not None]
                # A clone begins at version 0, and a change in place adds to it, but for batch norm's.
                self.changed = [name for name, tensor in state.items()
                                if tensor._version > 0 or not torch.equal(tensor, self.state[name])]
            except ExportError:
                raise
            except Exception as error:
                raise ExportError(f"{type(self.module).__name__} fails on the batch: {_first_line(error)}{_place(error)}"
                                  ) from error

    def training_program(self, precision: str):
        with self._kept(training=True):
            return self._program(lambda *tensors: self.run(precision, *tensors), precision)

    def programs(self, precisions: Sequence[str]):
        """All graphs of the file by name."""
        self.try_eagerly()
        found = {name: self.training_program(name) for name in precisions}
        found["evaluation"] = self.evaluation_program()
        for program in found.values():
            self.refuse_operators(program)
        self.check(found["FP32"])
        return found

    def evaluation_program(self):
        with self._kept(training=False):
            return self._program(self.evaluate, "evaluation")

    def _program(self, function, name: str):
        while True:
            try:
                with _quiet():
                    return self._export(self.traces[0], function, name)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next way is tried, also for the programs that follow.
                if len(self.traces) > 1:
                    self.traces = self.traces[1:]
                elif isinstance(error, ExportError):
                    raise
                else:
                    raise ExportError(f"{type(self.module).__name__} cannot be exported ({name}): {_first_line(error)}"
                                      f"{_place(error)}") from error

    def _export(self, trace, function, name: str):
        arguments = self.arguments()
        graph = trace(function, arguments, range(1, 1 + self.inputs))
        _leave_out_whole_slices(graph)
        _scale_by_tensors(graph)
        self.constants[name] = _lift_constants(graph)
        arguments += tuple(self.constants[name])
        batch = torch.export.Dim("batch")
        shapes = [{0: batch} if 1 <= position <= self.inputs else None for position in range(len(arguments))]
        return torch.export.export(graph, arguments, strict=False, dynamic_shapes=tuple(shapes))

    def refuse_operators(self, program) -> None:
        """Says which line needs an operator that no worker runs."""
        refused = [node.target for node in program.graph.nodes if node.op == "call_function" and not _runs_in_worker(node.target)]
        if not refused:
            return
        place = ""
        with self._kept(training=True):
            try:
                with _Stop(refused):
                    self._step("FP32", *self.arguments())
            except Exception as error:
                place = _place(error)
        name = str(refused[0])
        raise ExportError(f"{type(self.module).__name__} needs the operator {name}{place}, which no worker runs; "
                          f"{WAYS.get(name.split('.')[1], 'write it with other operators')}")

    def check(self, program) -> None:
        """Runs the FP32 graph beside the module, on this batch and on one of another size."""
        larger = {name: torch.cat([tensor, tensor[:1]]) for name, tensor in self.batch.items()}
        graph = program.module(check_guards=False)
        for batch in (self.batch, larger):
            arguments = self.arguments(batch)
            with self._kept(training=True):
                torch.manual_seed(0)
                wanted = self.run("FP32", *arguments)
                torch.manual_seed(0)
                try:
                    with torch.no_grad():
                        got = graph(*arguments, *self.constants["FP32"])
                except Exception as error:
                    raise ExportError(f"the graph of {type(self.module).__name__} does not run: {_first_line(error)}"
                                      ) from error
            losses = ["the losses of the examples"] if self.by_example else []
            first = ["loss", *losses]
            gradients = wanted[len(first):len(first) + len(self.gradients)]
            # A gradient that is zero but for rounding, as that of a bias before a norm, is as exact as those that it is made of.
            rounding = ROUNDING * torch.stack([gradient.double().norm() for gradient in gradients]).norm().item()
            allowed = [0.0] * len(first) + [rounding] * len(gradients) + [0.0] * len(self.changed)
            for name, ours, theirs, allowance in zip([*first, *self.gradients, *self.changed], got, wanted, allowed):
                if not _agree(ours, theirs, allowance):
                    examples = len(next(iter(batch.values())))
                    raise ExportError(f"the graph and the module differ in {name}, with {examples} examples: "
                                      f"{_first(ours)} instead of {_first(theirs)}; the module decides by values, or "
                                      "draws random numbers in another order than its graph")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's tracebacks of ways to trace that fail: another is tried, or the error tells."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Stop(TorchDispatchMode):
    """Fails where one of the operators is called."""

    def __init__(self, operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in self._operators:
            raise RuntimeError(str(func))
        return func(*args, **(kwargs or {}))


def _runs_in_worker(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__module__", "") == "_operator"
    name = target._schema.name.split("::")[1]
    return target.namespace == "aten" and (name in OPERATORS or (name.endswith("_") and name[:-1] in OPERATORS))


def _agree(ours: torch.Tensor, theirs: torch.Tensor, rounding: float) -> bool:
    ours, theirs = ours.double(), theirs.double()
    # Written so that NaN agrees with nothing.
    return bool((ours - theirs).norm() <= TOLERANCE * theirs.norm() + rounding + 1e-12)


def _mean(losses: torch.Tensor) -> torch.Tensor:
    """One number is its own mean, without an operator for it."""
    return losses.mean() if losses.dim() else losses


class _Lossy(torch.nn.Module):
    """A module whose forward is the loss, so that functional_call reaches all that the loss does with it."""

    def __init__(self, module, loss):
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, batch):
        return self.loss(self.module, batch)


def _trace_by_batch(function, arguments, fields) -> torch.fx.GraphModule:
    """With the batch size as the only symbol: several times as fast as a symbol for each size of each weight."""
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    tensors = []
    for position, tensor in enumerate(arguments):
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if position in fields:
            sizes[0] = DimDynamic.DUCK  # The same symbol in all fields.
        tensors.append(fakes.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes)))
    with fakes:
        graph = make_fx(function, tracing_mode="real")(*tensors)
    if any(tensors[position].shape[0].node.maybe_as_int() is not None for position in fields):
        raise ExportError("the trace is tied to one batch size")
    held = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    if any(isinstance(tensor, FakeTensor) for tensor in held):
        raise ExportError("a tensor that forward makes of numbers has no values in this trace")
    return graph


def _trace_by_batch_in_python(function, arguments, fields) -> torch.fx.GraphModule:
    """Composite operators that read a size as a number in C++ (flatten, reshape of a normalized tensor) keep it as a symbol in Python."""
    with enable_python_dispatcher():
        return _trace_by_batch(function, arguments, fields)


def _trace_by_every_size(function, arguments, fields) -> torch.fx.GraphModule:
    """For modules that the other way ties to one batch size."""
    del fields
    return make_fx(function, tracing_mode="symbolic")(*arguments)


def _has_no_gaps(tensor: torch.Tensor) -> bool:
    """False of some that have none, too: they are copied for nothing."""
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def _leave_out_whole_slices(graph: torch.fx.GraphModule) -> None:
    """Makes ``h[:, :, i]`` the one ``select`` that eager makes of it. A trace has a slice for each ``:``, and a gradient of each, which
    fills a tensor of the whole size with zeros and copies into it."""
    def is_whole(start, end, step, size):
        # As an int: a size that depends on the batch is not looked at.
        return start in (None, 0) and step == 1 and (end is None or (isinstance(end, int) and (
            end >= 2**63 - 1 or (isinstance(size, int) and end >= size))))

    def is_changed(node):
        return any(isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable and user.args[0] is node
                   for user in node.users)

    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.slice.Tensor:
            whole, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1:])
            size = whole.meta["val"].shape[dim]
        elif node.target is torch.ops.aten.slice_backward.default:
            whole, sizes, dim, start, end, step = node.args
            size = sizes[dim]
            if is_changed(node) or is_changed(whole):
                continue
        else:
            continue
        if is_whole(start, end, step, size):
            node.replace_all_uses_with(whole)
            graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()


def _scale_by_tensors(graph: torch.fx.GraphModule) -> None:
    """Makes a tensor of the number of ``x * 0.5``. nativert's multiplication by a number of torch 2.11 goes over the memory of ``x``
    as if it had no gaps, as a slice has, and reads what happens to lie behind it; it makes one product at a time, and none of complex
    numbers."""
    first = next(node for node in graph.graph.nodes if node.op != "placeholder")
    made: Dict[str, torch.fx.Node] = {}
    for node in list(graph.graph.nodes):
        if node.target not in (torch.ops.aten.mul.Tensor, torch.ops.aten.mul.Scalar):
            continue
        scaled, number = node.args[:2]
        value = scaled.meta.get("val") if isinstance(scaled, torch.fx.Node) else None
        is_tensor = isinstance(number, torch.fx.Node) and isinstance(number.meta.get("val"), torch.Tensor)
        if is_tensor or not isinstance(value, torch.Tensor):
            continue
        if (value.is_floating_point() or value.is_complex()) and value.dim() > 0 and type(number) in (int, float):
            # Of float64, as a number is: it changes the type of no tensor with dimensions.
            key = repr(float(number))  # 0.0 is -0.0 to a dict.
            if key not in made:
                with graph.graph.inserting_before(first):
                    made[key] = graph.graph.call_function(torch.ops.aten.full.default, ([], float(number)), {
                        "dtype": torch.float64, "layout": torch.strided, "device": value.device, "pin_memory": False})
            node.target, node.args = torch.ops.aten.mul.Tensor, (scaled, made[key])
        elif not _has_no_gaps(value):
            with graph.graph.inserting_before(node):
                copy = graph.graph.call_function(torch.ops.aten.clone.default, (scaled,), {"memory_format": torch.contiguous_format})
            node.replace_input_with(scaled, copy)
    graph.graph.lint()
    graph.recompile()


def _lift_constants(graph: torch.fx.GraphModule) -> List[torch.Tensor]:
    """Makes each tensor that the graph holds an input behind the others; returns them."""
    places, tensors = {}, []
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.graph.nodes):
        if node.op != "get_attr":
            continue
        if node.target not in places:
            with graph.graph.inserting_after(last):
                last = places[node.target] = graph.graph.placeholder(f"constant_{len(places)}")
            tensor = getattr(graph, node.target)
            last.meta.update(node.meta)
            tensors.append(tensor.detach().clone())
        node.replace_all_uses_with(places[node.target])
        graph.graph.erase_node(node)
    for name in places:
        delattr(graph, name)
    graph.graph.lint()
    graph.recompile()
    return tensors


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"


def _first(tensor: torch.Tensor) -> str:
    return f"{tensor.reshape(-1)[:1].double().tolist()}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _place(error: BaseException) -> str:
    """The innermost line of the caller's own code."""
    place, trace = "", error.__traceback__
    ours = str(Path(__file__).resolve().parent)
    library = str(Path(torch.__file__).resolve().parent)
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((ours, library, "<")):
            place = f", at {name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _bytes_of(tensor: torch.Tensor) -> Any:
    """Its memory, uncopied. ``bytes`` of a torch storage makes a Python number of each byte, a minute for 10 MB."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if not flat.numel():
        return b""
    memory = (ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())
    memory.tensor = flat  # Kept while the memory is.
    return memory


def _versions(module: torch.nn.Module) -> Dict[str, int]:
    """Version numbers of the module and its parts, which load_state_dict asks for."""
    found = {name: metadata.get("version") for name, metadata in module.state_dict()._metadata.items()}
    return {name: version for name, version in found.items() if isinstance(version, int) and version >= 0}


def _write(path: Path, step: _Step, programs) -> None:
    from torch.export.pt2_archive._package import package_pt2

    packed = io.BytesIO()
    package_pt2(packed, exported_programs=programs)
    tensors = {**step.trained, **step.state}
    roles = {name: "trained" if name in step.trained else "passing" if name in step.passing else "kept"
             for name in tensors}
    constants = {}
    for program, made in step.constants.items():
        constants[program] = [f"{program}.{number}" for number in range(len(made))]
        tensors.update(zip(constants[program], made))
        roles.update((name, "constant") for name in constants[program])
    manifest = {
        "format": FORMAT,
        "producer": f"genesis-trainer {__version__}",
        "torch": torch.__version__.split("+")[0],
        "module": type(step.module).__name__,
        "precisions": [name for name in programs if name in AUTOCAST],
        "fields": [{"name": name, "type": TYPES[tensor.dtype], "shape": list(tensor.shape[1:])}
                   for name, tensor in step.batch.items()],
        "tensors": [{"name": name, "type": TYPES[tensor.dtype], "shape": list(tensor.shape),
                     "role": roles[name]}
                    for name, tensor in tensors.items()],
        "tied": step.tied,
        "versions": _versions(step.module),
        "losses": "EXAMPLES" if step.by_example else "MEAN",
        "constants": constants,
        "gradients": step.gradients,
        "changed": step.changed,
    }
    partial = path.with_name(path.name + ".part")
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for record in source.namelist():
            name = record.split("/", 1)[1]
            # Pickles; the trainer reads none.
            if name.startswith("data/sample_inputs/"):
                continue
            archive.writestr(zipfile.ZipInfo(f"{ROOT}/{name}"), source.read(record))
        archive.writestr(zipfile.ZipInfo(f"{ROOT}/extra/genesis.json"), json.dumps(manifest, indent=1))
        for number, tensor in enumerate(tensors.values()):
            archive.writestr(zipfile.ZipInfo(f"{ROOT}/extra/tensors/{number}"), _bytes_of(tensor))
    partial.replace(path)
