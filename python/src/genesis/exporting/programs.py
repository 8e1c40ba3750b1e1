"""Traces the graphs of a module, one for each precision, one of the held-out loss, and one of predictions."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from genesis.errors import ExportError
from genesis.exporting import as_in_eager, copies, faults, for_nativert, held_out, packed, pure_formats, runtime, tracing
from genesis.exporting.comparison import Comparison
from genesis.exporting.predictions import PREDICTION, Predict, Prediction
from genesis.exporting.step import PRECISIONS, Step

# Operators that workers support: those of ATen, with all overloads and in-place variants, and functions of Python's operator module on
# sizes.
OPERATORS = frozenset((Path(__file__).parent / "exported_operators.txt").read_text().split())
# How to replace some unsupported operators.
EMBEDDING = "write torch.nn.Embedding(...)(indices).sum(1), or mean(1), in place of EmbeddingBag"
NUMBER = "no graph reads a number out of a tensor: keep it a tensor, without item(), tolist() or float()"
WAYS = {"_assert_scalar": "a mask that selects, x[mask], makes a size of values: use torch.where, or multiply by the mask",
        "_embedding_bag": EMBEDDING, "_embedding_bag_forward_only": EMBEDDING,
        "_local_scalar_dense": NUMBER,
        "_unique2": "its size depends on values: count with torch.nn.functional.one_hot(x, n).sum(0)",
        "embedding_renorm": "leave out max_norm= of Embedding, which changes its weights in forward; torch.nn.functional.normalize of the rows "
                            "bounds them in a graph",
        "_sparse_coo_tensor_with_dims_and_tensors": "leave out sparse=True"}
# Maximum number of conditions on the batch size that are tested.
MOST_CONDITIONS = 8


class _Made(NamedTuple):
    """A traced graph, perhaps from a copy of this process."""
    records: packed.Records
    constants: List[torch.Tensor]
    held_out_quotients: int  # Step.held_out_quotients, if it is the graph of the held-out loss.


class Programs:
    """The graphs of a step, traced, compared with eager Python and tried as a worker runs them.

    Attributes:
        graphs: the records of each graph by its name, a precision, "evaluation" or "prediction".
        prediction: the predictions; None without ``predict``.
        without: why the module has no graph of a precision, by precision.
    """

    def __init__(self, step: Step, precisions: Optional[Sequence[str]], predict: Predict, say: Callable[[str], None]) -> None:
        """Traces all graphs.

        Args:
            step: the step to trace. Its constants, conditions, held_out_quotients and held_out_unfound are set.
            precisions: the precisions to export, each of which must work. Default: all, without the pure ones that do not work.
            predict: the function of the predictions; None for none.
            say: called with what is done next.
        """
        self.step = step
        self._say = say
        self.without: Dict[str, str] = {}
        # Tracing methods that have not failed yet, the fastest first.
        self._traces = (tracing.by_batch, tracing.by_batch_in_python, tracing.by_every_size) if step.dynamic else (tracing.of_one_size,)
        say("running it in Python")
        step.try_eagerly()
        self.prediction = None if predict is None else Prediction(step, predict)
        comparison = Comparison(step)
        comparison.require_no_memory()
        self.graphs: Dict[str, packed.Records] = {}
        reduced = [name for name in PRECISIONS[1:] if precisions is None or name in precisions]
        predictions = [PREDICTION] if self.prediction else []
        # An error of FP32 is raised before any other, so that later ones are specific to their graph.
        outcomes = copies.run(lambda: comparison.require_training(self._runnable("FP32", self._training("FP32"))),
                              {name: functools.partial(self._make, name, comparison) for name in (*reduced, "evaluation", *predictions)}, say)
        # Keep the same order on any number of processors.
        self.graphs, step.constants = {"FP32": self.graphs["FP32"]}, {"FP32": step.constants["FP32"]}
        for name in ("evaluation", *reduced, *predictions):
            try:
                made = outcomes[name].get()
            except ExportError as error:
                if precisions is not None or name not in pure_formats.FORMATS:
                    raise
                self.without[name] = str(error)
                continue
            self.graphs[name], step.constants[name] = made.records, made.constants
            if name == "evaluation":
                step.held_out_quotients = made.held_out_quotients

    def _make(self, name: str, comparison: Comparison) -> "_Made":
        """Traces a graph other than FP32 and compares it with Python."""
        if name == "evaluation":
            comparison.require_evaluation(self._runnable(name, self._in_eval_mode(name, self.step.evaluate)))
        elif name == PREDICTION:
            comparison.require_prediction(self._runnable(name, self._in_eval_mode(name, self.prediction.run)), self.prediction)
        else:
            self._reduce(name, comparison)
        return _Made(self.graphs[name], self.step.constants[name], self.step.held_out_quotients)

    def _training(self, precision: str):
        with self.step.kept(training=True):
            return self._trace(lambda *tensors: self.step.run(precision, *tensors), precision)

    def _reduce(self, precision: str, comparison: Comparison) -> None:
        traces = self._traces
        try:
            if precision in pure_formats.FORMATS:
                self.step.try_in_format(precision)
            comparison.require_reduced(precision, self._runnable(precision, self._training(precision)))
        except ExportError:
            self._traces = traces  # The next precision starts with the same methods as this one.
            self.step.constants.pop(precision, None)
            self.graphs.pop(precision, None)
            raise

    def _runnable(self, name: str, program) -> runtime.Graph:
        self._say(f"comparing {_called(name)} with Python")
        self._refuse_operators(name, program)
        records = packed.pack(name, program)
        self.graphs[name] = packed.for_workers(name, records)
        try:
            return runtime.Graph(name, records)
        except Exception as error:
            raise ExportError(f"the graph of {type(self.step.module).__name__} in {name} cannot be loaded as a worker loads it: {faults.first_line(error)}; "
                              "write it with other operators") from error

    def _in_eval_mode(self, name: str, function):
        with self.step.kept(training=False):
            return self._trace(function, name)

    def _trace(self, function, name: str):
        while True:
            try:
                with tracing.quiet(), as_in_eager.patched():
                    return self._export(self._traces[0], function, name)
            except Exception as error:  # The next method is used from here on, also for later graphs.
                if len(self._traces) > 1:
                    self._traces = self._traces[1:]
                elif isinstance(error, ExportError):
                    raise
                else:
                    place = faults.place(error) or faults.place_in_forward(functools.partial(self._fail_again, function, name, error))
                    way = f"; it can in FP32: leave {name} out of precisions" if name in PRECISIONS[1:] else ""
                    if faults.is_of_the_size(error):
                        way = f"; {faults.ONE_SIZE}{way}"
                    raise ExportError(f"{type(self.step.module).__name__} cannot be exported ({name}): {faults.reason(error)}{place}{way}"
                                      ) from error

    def _export(self, trace, function, name: str):
        self._say(f"tracing {_called(name)}")
        arguments, fields = self._inputs(name)
        graph = trace(function, arguments, fields)
        tracing.leave_out_whole_slices(graph)
        tracing.leave_out_detached(graph)
        tracing.numbers_become_tensors(graph)
        for_nativert.copy_in_two_steps(graph)
        if name == "evaluation":
            self.step.held_out_quotients, self.step.held_out_unfound = held_out.give_parts(graph, fields)
        self.step.constants[name] = tracing.lift_constants(graph)
        conditions = tracing.conditions_of_size(graph, fields.start) if self.step.dynamic else []
        self.step.conditions[name] = conditions[:MOST_CONDITIONS]
        arguments += tuple(self.step.constants[name])
        if tracing.is_complete(graph, conditions):
            program = packed.program_of(graph, arguments)
        else:
            graph.recompile()
            batch = {0: torch.export.Dim("batch")} if self.step.dynamic else None
            shapes = [batch if position in fields else None for position in range(len(arguments))]
            program = torch.export.export(graph, arguments, strict=False, dynamic_shapes=tuple(shapes))
            program.example_inputs = None  # Otherwise the package would contain them, including all weights.
        for_nativert.reshape_views(program)
        for_nativert.divide_where_sizes_become_floats(program.graph)
        return program

    def _inputs(self, name: str) -> Tuple[Tuple[torch.Tensor, ...], range]:
        """Returns the arguments of a graph, and the positions of those that have the batch as first dimension."""
        if name == PREDICTION:
            return self.prediction.arguments(), self.prediction.fields
        return self.step.arguments(precision=name), self.step.fields

    def _refuse_operators(self, name: str, program) -> None:
        """Raises ExportError for an operator that workers do not support, with the line that needs it."""
        holding = next((node.target for node in program.graph.nodes if any(isinstance(each, complex) for each in (*node.args, *node.kwargs.values()))),
                       None)
        if holding is not None:
            raise ExportError(f"{type(self.step.module).__name__} gives {holding} a complex number, which no graph holds; make a tensor of it: "
                              "torch.complex(torch.tensor(0.0), torch.tensor(1.0))")
        refused = [node.target for node in program.graph.nodes if node.op == "call_function" and not _runs_in_worker(node.target)]
        if not refused:
            return

        def stop():
            with _Stop(refused):
                if name == PREDICTION:
                    self.prediction.run(*self.prediction.arguments())
                else:
                    self.step.compute("FP32", *self.step.arguments())

        with self.step.kept(training=name != PREDICTION):
            place = faults.place_in_forward(stop)
        first = refused[0]
        if isinstance(first, torch._ops.OpOverload):
            name, way = str(first), WAYS.get(str(first).split(".")[1].rstrip("_"), "write it with other operators")
        else:
            name, way = getattr(first, "__name__", str(first)), ("a size may be added, subtracted, multiplied, divided and compared; "
                                                                 f"{faults.ONE_SIZE}")
        raise ExportError(f"{type(self.step.module).__name__} needs the operator {name}{place}, which no worker runs; {way}")

    def _fail_again(self, function, name: str, error: Exception) -> None:
        """Traces again to find the line that fails. If the batch size became a number, fails at the line where it did."""
        numbers = tracing.numbers_of_sizes_fail() if faults.SIZE_BECAME_A_NUMBER.search(str(error)) else contextlib.nullcontext()
        with numbers, tracing.quiet():
            self._traces[0](function, *self._inputs(name))


def _called(name: str) -> str:
    return {"evaluation": "the held-out loss", PREDICTION: "predictions"}.get(name, name)


class _Stop(TorchDispatchMode):
    """A mode that fails at a call of one of the operators, or at a call that would be traced to one."""

    def __init__(self, operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in self._operators or (torch.ops.aten._assert_scalar.default in self._operators and _makes_size_of_values(func, args)):
            raise RuntimeError(str(func))
        return func(*args, **(kwargs or {}))


def _makes_size_of_values(func, args) -> bool:
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.dynamic_output_shape in func.tags


def _runs_in_worker(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', '')}" in OPERATORS
    name = target._schema.name.split("::")[1]
    return target.namespace == "aten" and (name in OPERATORS or (name.endswith("_") and name[:-1] in OPERATORS))
