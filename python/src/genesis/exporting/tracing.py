"""Methods that trace a function of tensors to a graph of ATen operators, and rewrites for nativert."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple
from unittest import mock

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from genesis.errors import ExportError


class _Tracer:
    """A runner of traces, one at a time because tracing changes global state of torch.

    Traces run in the main thread or in a thread that does not end: torch 2.11 keeps thread-bound objects from the first trace, and a later
    trace in another thread crashes once the thread of the first one has ended.
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
    # A child process does not inherit the thread.
    os.register_at_fork(after_in_child=_renew_tracer)


def run_alone(function: Callable[[], Any]) -> Any:
    """Runs a function that traces, while no other trace runs. Returns its result."""
    return _tracer.run(function)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses log messages of tracing methods that fail, because another method is tried or the error is raised."""
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


@contextlib.contextmanager
def _sizes_computed_once() -> Iterator[None]:
    """Caches the results of computations with sizes during a trace. Without the cache they take a third of the time of a trace.

    A result stays valid for the whole trace, because numbers_of_sizes_fail keeps symbols from becoming numbers. A condition is cached only if
    it became a guard, so that conditions_of_size finds it."""
    def remembered(operation):
        results: Dict[Any, Any] = {}

        def compute(node, other):
            if get_proxy_mode() is not None:  # The result must become a node of the graph.
                return operation(node, other)
            key = node._expr, other._expr, node.pytype, other.pytype
            if key not in results:
                results[key] = operation(node, other)
            return results[key]
        return compute

    def guard_bool(node, file, line):
        if ShapeEnv._suppress_guards_tls():
            return decide(node, file, line)
        if node._expr not in decided:
            decided[node._expr] = decide(node, file, line)
        return decided[node._expr]

    decide, decided = SymNode.guard_bool, {}
    with contextlib.ExitStack() as patches:
        for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"):
            patches.enter_context(mock.patch.object(SymNode, name, remembered(getattr(SymNode, name))))
        patches.enter_context(mock.patch.object(SymNode, "guard_bool", guard_bool))
        yield


def by_batch(function, arguments, fields) -> torch.fx.GraphModule:
    """Traces with the batch size as the only symbol, which is several times as fast as a symbol for each size of each weight."""
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # A hit of the cache takes longer than the operator's rule of shapes, because it compares symbols.
    fakes.cache_enabled = False
    tensors = []
    for position, tensor in enumerate(arguments):
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if position in fields:
            sizes[0] = DimDynamic.DUCK  # The same symbol in all fields.
        tensors.append(fakes.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes)))
    with fakes, numbers_of_sizes_fail(), _sizes_computed_once():
        graph = make_fx(function, tracing_mode="real")(*tensors)
    if any(tensors[position].shape[0].node.maybe_as_int() is not None for position in fields):
        raise ExportError("the trace is tied to one batch size")
    held = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    if any(isinstance(tensor, FakeTensor) for tensor in held):
        raise ExportError("a tensor that forward makes of numbers has no values in this trace")
    return graph


def by_batch_in_python(function, arguments, fields) -> torch.fx.GraphModule:
    """Traces composite operators in Python, because some of them (flatten, reshape of a normalized tensor) read sizes as numbers in C++."""
    with enable_python_dispatcher():
        return by_batch(function, arguments, fields)


def by_every_size(function, arguments, fields) -> torch.fx.GraphModule:
    """Traces with a symbol for each size, for modules that the other methods specialize to one batch size."""
    del fields
    return make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*arguments)


def of_one_size(function, arguments, fields) -> torch.fx.GraphModule:
    """Traces for batches of exactly this size."""
    del fields
    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)


def _has_no_gaps(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor is known to have no gaps in memory. False for some tensors without gaps, which are then copied
    needlessly."""
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def leave_out_whole_slices(graph: torch.fx.GraphModule) -> None:
    """Removes slices that select everything, so that ``h[:, :, i]`` becomes the single ``select`` of eager mode.

    A trace has a slice for each ``:``. The gradient of each slice fills a tensor of the whole size with zeros and copies into it."""
    def is_whole(start, end, step, size):
        # Sizes that depend on the batch are symbols, and are not considered.
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


def leave_out_detached(graph: torch.fx.GraphModule) -> None:
    """Removes ``detach``, which a trace has for each value that a gradient needs, and which does nothing in a graph without autograd."""
    outputs = next(iter(graph.graph.find_nodes(op="output"))).all_input_nodes
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        if node not in outputs:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)


# Operators that may have a number in a trace where nativert requires a tensor.
NUMERIC = (torch.ops.aten.mul.Tensor, torch.ops.aten.mul.Scalar, torch.ops.aten.floor_divide.default, torch.ops.aten.add.Tensor,
           torch.ops.aten.sub.Tensor, torch.ops.aten.div.Tensor, torch.ops.aten.div.Tensor_mode)


def numbers_become_tensors(graph: torch.fx.GraphModule) -> None:
    """Replaces the number in ``x * 0.5``, in ``x // 2``, and in arithmetic with integers and masks by a tensor.

    nativert of torch 2.11 multiplies by a number as if ``x`` were contiguous, so it reads beyond a slice. This kernel computes one product
    at a time, and does not support complex numbers. nativert supports neither floor division by a number nor arithmetic between a mask and a
    number. No graph can contain a complex number."""
    aten, first = torch.ops.aten, next(node for node in graph.graph.nodes if node.op != "placeholder")
    made: Dict[Tuple[str, torch.dtype], torch.fx.Node] = {}

    def tensor_of(number, dtype, device):
        key = repr(number), dtype  # 0.0 and -0.0 are equal as keys.
        if key not in made:
            with graph.graph.inserting_before(first):
                made[key] = graph.graph.call_function(torch.ops.aten.full.default, ([], number), {
                    "dtype": dtype, "layout": torch.strided, "device": device, "pin_memory": False})
        return made[key]

    def tensor_of_complex(number, device):
        """Builds a complex tensor from its real and imaginary part."""
        parts = tuple(tensor_of(each, torch.float32, device) for each in (number.real, number.imag))
        key = repr(number), torch.complex64
        if key not in made:
            with graph.graph.inserting_before(first):
                made[key] = graph.graph.call_function(torch.ops.aten.complex.default, parts)
        return made[key]

    for node in list(graph.graph.nodes):
        if node.target in (aten.mul_.Tensor, aten.mul_.Scalar) and type(node.args[1]) in (int, float):
            value = node.args[0].meta["val"]
            # nativert rounds the number to the format of a tensor that is multiplied in place.
            if value.dtype in (torch.bfloat16, torch.float16):
                node.target = aten.mul_.Tensor
                wide = torch.float64 if value.dim() > 0 else torch.float32
                node.args = (node.args[0], tensor_of(float(node.args[1]), wide, value.device))
        if node.target is aten._conj.default and type(node.args[0]) is complex:  # From the gradient of x * 1j.
            node.replace_all_uses_with(tensor_of_complex(node.args[0].conjugate(), node.meta["val"].device))
            graph.graph.erase_node(node)
        if node.target not in NUMERIC:
            continue
        position = next((each for each in (0, 1) if type(node.args[each]) in (bool, int, float, complex)), None)
        number, other = (node.args[position], node.args[1 - position]) if position is not None else (node.args[1], node.args[0])
        value = other.meta.get("val") if isinstance(other, torch.fx.Node) else None
        if not isinstance(value, torch.Tensor) or (isinstance(number, torch.fx.Node) and isinstance(number.meta.get("val"), torch.Tensor)):
            continue
        multiplies = node.target in (aten.mul.Tensor, aten.mul.Scalar)
        floating = value.is_floating_point() or value.is_complex()
        if position is not None and (not floating or type(number) in (bool, complex) or node.target is aten.floor_divide.default or
                                     (multiplies and value.dim() > 0)):
            if multiplies:
                node.target = aten.mul.Tensor
            if type(number) is complex:
                as_tensor = tensor_of_complex(number, value.device)
            else:
                as_tensor = tensor_of(float(number) if floating and type(number) is int else number, _type_beside(value, number), value.device)
            node.args = tuple(as_tensor if each == position else argument for each, argument in enumerate(node.args))
        elif multiplies and not _has_no_gaps(value):
            with graph.graph.inserting_before(node):
                copy = graph.graph.call_function(torch.ops.aten.clone.default, (other,), {"memory_format": torch.contiguous_format})
            node.replace_input_with(other, copy)


def _type_beside(value: torch.Tensor, number: Any) -> torch.dtype:
    """Returns the type of a 0-dim tensor that promotes with ``value`` like the number would (torch.result_type)."""
    if value.is_floating_point() or value.is_complex():
        # float64 promotes like a number: a 0-dim tensor does not change the type of a tensor with dimensions.
        return torch.float64 if value.dim() > 0 else value.dtype
    if type(number) in (float, bool):
        return torch.float32 if type(number) is float else torch.bool
    return value.dtype if value.dim() == 0 and value.dtype != torch.bool else torch.int64


def lift_constants(graph: torch.fx.GraphModule) -> List[torch.Tensor]:
    """Replaces each constant tensor of the graph by an additional input, and returns these tensors."""
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
    return tensors


# Batch sizes to test: small and round numbers and their neighbours.
SIZES = (*range(2, 34), 48, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 512, 1000, 1024, 1025)


def conditions_of_size(graph: torch.fx.GraphModule, field: int) -> List[Tuple[str, int]]:
    """Returns conditions on the batch size that held in the trace, each with a size that violates it.

    ``field`` is the position of an argument that has the batch as its first dimension."""
    size = list(graph.graph.find_nodes(op="placeholder"))[field].meta["val"].shape[0].node
    found: Dict[str, int] = {}
    for guard in size.shape_env.guards:
        if guard.expr.free_symbols != {size.expr}:
            continue
        other = next((each for each in SIZES if guard.expr.subs(size.expr, each) == False), None)  # noqa: E712 - sympy's false.
        if other is not None:
            found.setdefault(str(guard.expr.subs(size.expr, sympy.Symbol("batch"))), other)
    return list(found.items())


def is_complete(graph: torch.fx.GraphModule, conditions: List[Tuple[str, int]]) -> bool:
    """Returns whether the graph needs no second trace by ``torch.export``. That would replace sizes of weights by numbers, refuse
    conditions on the batch size, and add a check for each size that depends on values."""
    shape_env = next(iter(graph.graph.find_nodes(op="placeholder"))).meta["val"].fake_mode.shape_env
    return not conditions and (shape_env is None or len(shape_env.var_to_range) <= 1)


@contextlib.contextmanager
def numbers_of_sizes_fail() -> Iterator[None]:
    """Makes a trace fail at the line that converts the batch size to a number."""
    replace = ShapeEnv._set_replacement

    def stop(shape_env, symbol, value, *others):
        if value.is_number and not shape_env.is_unbacked_symint(symbol):
            raise ValueError(f"a size became {value}")
        return replace(shape_env, symbol, value, *others)

    ShapeEnv._set_replacement = stop
    try:
        yield
    finally:
        ShapeEnv._set_replacement = replace
