"""Compares a traced graph with the eager Python step from which it was traced."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch

from genesis.errors import ExportError
from genesis.exporting import adding_up, faults, outside_state, pure_formats
from genesis.exporting.losses import describe
from genesis.exporting.outside_state import same
from genesis.exporting.predictions import PREDICTION, Prediction
from genesis.exporting.runtime import Graph
from genesis.exporting.step import TRIED_EXAMPLES, Step

Tensors = Dict[str, torch.Tensor]
# Returns the outputs of a graph for a batch and trained tensors.
Evaluated = Callable[[Tensors, Tensors], List[torch.Tensor]]

# Maximum relative difference in FP32 due to another order of summation.
TOLERANCE = 1e-4
# Additional tolerance for a gradient, relative to the norm of all gradients: half a unit in the last place of float32.
ROUNDING = 2.0 ** -24
# Seed of the random numbers of both sides; a number that no module is likely to use.
SEED = 7_340_033
# Maximum relative difference of the losses of two equal eager runs, due to kernels that sum in no fixed order.
UNORDERED = 1e-6
# Maximum relative difference of a loss computed in BF16.
REDUCED = 0.05
# Additional tolerance of a loss in BF16, in multiples of the difference between BF16 and FP32 in Python.
ROUNDINGS = 4
# Number of other batches that run between two steps on the same batch, which must give the same result.
OTHER_BATCHES = 3


class _Result(NamedTuple):
    """Results of an eager step, with the buffers and frozen parameters after it."""
    loss: torch.Tensor
    losses: torch.Tensor
    gradients: Dict[str, Optional[torch.Tensor]]
    state: Tensors


# Possible causes of a difference, for error messages.
BY_VALUES = ("the module decides by values, draws random numbers in another order than its graph, or changes a tensor by .data =, where a graph "
             "follows .copy_()")
SIZE = ("a size of the batch became a number: x.shape[0] stays a size; len(x), float(x.shape[0]), range(x.shape[0]) and functions of math do "
        f"not; {faults.ONE_SIZE}")
KEPT = "in the second step: what forward keeps in an attribute is not part of a graph: keep it in a buffer (register_buffer)"
OTHER_NAME = ("once weights have changed: what reads a parameter or a buffer other than by its name in the module, as a list of parameters and "
              ".data = do, has the value that it had when the module was exported; with .copy_() under torch.no_grad() a graph follows")
ZEROS = ("nn.TransformerEncoder gives zeros for what is masked in eval mode alone: make it with enable_nested_tensor=False, or leave out what "
         "is masked")


class Comparison:
    """A comparison of FP32 graphs with the module run eagerly, as in a Python training loop.

    A trace may be wrong for the next step, for other weights, or for a batch of another size. If results differ, the methods raise
    ExportError with possible causes.
    """

    def __init__(self, step: Step) -> None:
        self._step = step

    def require_no_memory(self) -> None:
        """Requires that the loss depends only on the batch, weights, buffers and torch's random numbers. Call it before a trace.

        It must not depend on other state that forward kept in earlier steps, or on random numbers of other generators. If forward has
        changed an attribute, the losses must be bitwise equal."""
        step, name = self._step, type(self._step.module).__name__
        with step.kept(training=True):
            drawn = outside_state.drawn()
            first = self._loss_in_python(step.batch)
            if outside_state.drawn() != drawn and not all(self._gives(first, number) for number in (0.0, 1 - 2 ** -53)):
                raise ExportError(f"{name} draws with random or numpy.random, which no graph does: draw with torch.rand, and choose with torch.where")
            before, turns = outside_state.attributes(step.module), []
            for turn in range(OTHER_BATCHES):
                with contextlib.suppress(Exception):  # The module may not support this combination of rows.
                    self._loss_in_python(self._rolled(turn + 1))
                turns.append(outside_state.numbers(step.module))
            again, after = self._loss_in_python(step.batch), outside_state.attributes(step.module)
            once = outside_state.values(step.module)
            self._loss_in_python(step.batch)
            evolving = outside_state.changed(once, outside_state.values(step.module))
            changed = [attribute for attribute in after if after[attribute] != before.get(attribute)]
            counted = [attribute for attribute, value in turns[0].items() if value != turns[1].get(attribute) != turns[2].get(attribute)]
        if counted:
            raise self._counts(f"the number {counted[0]}")
        # A small difference may come from a kernel that sums in no fixed order, and not from state.
        if not same(again, first) and (changed or (again - first).abs() > UNORDERED * first.abs()):
            cause = (f"what forward keeps in {', '.join(changed[:3])} is not part of a graph: keep it in a buffer (register_buffer)" if changed else
                     "it draws with a generator of its own (leave out generator=, and the job's seed decides), or keeps something elsewhere than in "
                     "a buffer (register_buffer), which no graph has")
            raise ExportError(f"the loss of {name} on a batch is {again.item():.9g} after other batches and was {first.item():.9g} before them, with the "
                              f"same weights and buffers: {cause}")
        lengths = [value for value in evolving if value.startswith("len(")]
        if len(evolving) > len(lengths):
            raise self._counts(next(value for value in evolving if value not in lengths))
        if lengths:
            warnings.warn(f"forward of {name} changes {lengths[0]} in each step, which its graph does not do: this is right for a log, and wrong if "
                          "forward reads it", stacklevel=2)

    def _counts(self, what: str) -> ExportError:
        return ExportError(f"forward of {type(self._step.module).__name__} changes {what} in each step, which a graph would keep as it was: make it a "
                           "buffer (register_buffer), change it in place, and choose with torch.where; or leave it out if it is only a log")

    def require_training(self, graph: Graph) -> None:
        """Compares losses, gradients and state of the graph ``FP32``."""
        step = self._step
        self._compare(graph, step.batch, BY_VALUES)
        for batch in self._one_more():
            self._compare(graph, batch, SIZE)
        self._compare(graph, step.batch, KEPT, steps=2)
        self._compare(graph, step.batch, OTHER_NAME, trained=self._moved())
        for condition, size in step.conditions.get("FP32", []):
            self._compare(graph, self._of_size(size), self._by_size(condition), may_fail=True)

    def require_evaluation(self, graph: Graph) -> None:
        """Compares the loss of the graph ``evaluation``."""
        step = self._step
        evaluated = functools.partial(self._evaluated, "evaluation", graph, functools.partial(_given, step))
        self._require_in_eval_mode("evaluation", lambda batch: {"the held-out loss": step.evaluation_loss(batch)}, evaluated)
        if step.dynamic:
            adding_up.warn_if_not(step, lambda batch: evaluated(batch, step.trained), TOLERANCE)

    def require_prediction(self, graph: Graph, prediction: Prediction) -> None:
        """Compares the outputs of the graph ``prediction``, also for a batch of one example, as agents send it."""
        evaluated = functools.partial(self._evaluated, PREDICTION, graph, prediction.given)
        self._require_in_eval_mode(PREDICTION, prediction.wanted, evaluated, sizes=(1,))

    def _require_in_eval_mode(self, name: str, in_python: Callable[[Tensors], Tensors], evaluated: Evaluated, sizes: Sequence[int] = ()) -> None:
        """Compares the outputs of a graph for a batch with the tensors, by name, that Python computes for the module with its current weights.
        ``sizes`` are further batch sizes to compare."""
        step = self._step
        nested = any(isinstance(part, torch.nn.TransformerEncoder) and part.enable_nested_tensor for part in step.module.modules())
        compare = functools.partial(self._compare_in_eval_mode, in_python, evaluated)
        compare(step.batch, step.trained, ZEROS if nested else BY_VALUES)
        for batch in self._one_more():
            compare(batch, step.trained, SIZE)
        compare(step.batch, self._moved(), OTHER_NAME)
        others = [(self._by_size(condition), size) for condition, size in step.conditions.get(name, [])]
        for cause, size in (*others, *((SIZE, size) for size in sizes if step.dynamic)):
            compare(self._of_size(size), step.trained, cause, may_fail=True)

    def _evaluated(self, name: str, graph: Graph, given: Callable[[Tensors], List[torch.Tensor]], batch: Tensors, trained: Tensors
                   ) -> List[torch.Tensor]:
        """Returns the outputs of a graph for a batch. ``given`` returns the arguments that come before the weights."""
        step = self._step
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(SEED)
            return graph(*given(batch), *_copies(trained), *_copies(step.state), *step.constants[name])

    def require_reduced(self, precision: str, graph: Graph) -> None:
        """Requires that a graph of reduced precision runs, and that its loss in BF16 agrees with Python.

        A trace computes no values, so it misses errors such as a product of tensors of two types. FP16 is not compared, because it is slow
        on a CPU and torch lacks some of its CPU kernels."""
        step = self._step
        compares = precision in ("MIXED_BF16", "BF16")
        for batch in (step.batch, *self._one_more()) if compares else (self._of_size(TRIED_EXAMPLES) if step.dynamic else step.batch,):
            with step.kept(training=True):
                try:
                    torch.manual_seed(SEED)
                    got = self._by_graph(graph, batch, step.trained, 1, precision)
                except Exception as error:
                    raise ExportError(f"the graph of {type(step.module).__name__} in {precision} does not run: {faults.first_line(error)}; it can be "
                                      f"exported with {precision} left out of precisions"
                                      + (", or with .float() where autocast gives tensors of two types" if precision not in pure_formats.FORMATS else "")
                                      ) from error
                wanted = exact = None
                with contextlib.suppress(Exception):  # A graph supports some operators for which eager mode lacks a kernel.
                    wanted, exact = (self._loss_in_python(batch, each) for each in (precision, "FP32")) if compares else (None, None)
            # The loss may be a small difference of large numbers, which amplifies rounding errors.
            if wanted is not None and torch.isfinite(wanted) and (got[0] - wanted).abs() > REDUCED * wanted.abs() + ROUNDINGS * (wanted - exact).abs():
                raise self._difference(f"the loss in {precision}", f"with {_examples(batch)} examples", f"{_first(got[0])} instead of {_first(wanted)}",
                                       f"leave {precision} out of precisions")

    def _one_more(self) -> List[Tensors]:
        """Returns a batch of one more example if the graphs support any size; otherwise nothing."""
        return [self._of_size(_examples(self._step.batch) + 1)] if self._step.dynamic else []

    def _of_another_size(self, batch: Tensors) -> str:
        return "" if _examples(batch) == _examples(self._step.batch) else f"; {faults.ONE_SIZE}"

    @staticmethod
    def _by_size(condition: str) -> str:
        return f"forward decides by the size of the batch, and a graph goes one way: where {condition}; {faults.ONE_SIZE}"

    def _of_size(self, size: int) -> Tensors:
        return {name: torch.cat([tensor] * -(-size // len(tensor)))[:size] for name, tensor in self._step.batch.items()}

    def _rolled(self, turn: int) -> Tensors:
        """Returns the batch with its rows rotated, and with floating-point fields scaled."""
        return {name: torch.roll(tensor, turn, 0) * (1 + 0.1 * turn) if tensor.is_floating_point() else torch.roll(tensor, turn, 0)
                for name, tensor in self._step.batch.items()}

    def _moved(self) -> Tensors:
        """Returns weights like those after some steps: perturbed, with the same signs."""
        generator = torch.Generator().manual_seed(1)

        def noise(tensor: torch.Tensor) -> torch.Tensor:
            return torch.randn(tensor.shape, generator=generator).to(tensor)
        return {name: torch.where(tensor == 0, 0.01 * noise(tensor).abs(), tensor * (1 + 0.05 * noise(tensor)))
                for name, tensor in self._step.trained.items()}

    def _compare(self, graph: Graph, batch: Tensors, cause: str, trained: Optional[Tensors] = None, steps: int = 1,
                 may_fail: bool = False) -> None:
        """Compares some steps of the graph with the module. With ``may_fail``, ignores batches that the module does not support."""
        step, trained = self._step, trained or self._step.trained
        with step.kept(training=True):
            torch.manual_seed(SEED)
            try:
                wanted = self._in_python(batch, trained, steps)
            except Exception as error:
                if may_fail:
                    return
                raise ExportError(f"{type(step.module).__name__} fails in Python's own loop, {_examples(batch)} examples, step {steps}: "
                                  f"{faults.first_line(error)}{faults.place(error)}{self._of_another_size(batch)}") from error
            if not torch.isfinite(wanted.loss):
                return
            torch.manual_seed(SEED)
            try:
                got = self._by_graph(graph, batch, trained, steps)
            except Exception as error:
                raise ExportError(f"the graph of {type(step.module).__name__} does not run: {faults.first_line(error)}") from error
        self._require_same(got, wanted, f"with {_examples(batch)} examples", cause)

    def _compare_in_eval_mode(self, in_python: Callable[[Tensors], Tensors], evaluated: Evaluated, batch: Tensors, trained: Tensors, cause: str,
                              may_fail: bool = False) -> None:
        step, where = self._step, f"in eval mode, with {_examples(batch)} examples"
        with step.kept(training=False):
            torch.manual_seed(SEED)
            try:
                with self._weights(trained):
                    wanted = in_python({name: tensor.clone() for name, tensor in batch.items()})
            except Exception as error:
                if may_fail:
                    return
                raise ExportError(f"{type(step.module).__name__} fails {where}: {faults.first_line(error)}{faults.place(error)}"
                                  f"{self._of_another_size(batch)}") from error
            try:
                got = evaluated(batch, trained)
            except Exception as error:
                raise ExportError(f"the graph of {type(step.module).__name__} does not run {where}: {faults.first_line(error)}") from error
        for (name, theirs), ours in zip(wanted.items(), got):
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                raise self._difference(name, where, f"{describe(ours)} instead of {describe(theirs)}", cause)
            finite = torch.isfinite(theirs)
            if not same(ours[~finite], theirs[~finite]) or not _agree(ours[finite], theirs[finite], 0.0):
                raise self._difference(name, where, f"{_first(ours)} instead of {_first(theirs)}", cause)

    def _by_graph(self, graph: Graph, batch: Tensors, trained: Tensors, steps: int, precision: str = "FP32") -> List[torch.Tensor]:
        step, trained = self._step, self._step.in_format(precision, dict(zip(trained, _copies(trained))))
        state = dict(zip(self._step.state, _copies(self._step.state)))
        given = _given(step, batch)
        got: List[torch.Tensor] = []
        with torch.no_grad():
            for _ in range(steps):
                got = graph(*given, *trained.values(), *state.values(), *step.constants[precision])
                state.update(zip(step.changed, got[len(got) - len(step.changed):]))
        return got

    def _gives(self, loss: torch.Tensor, number: float) -> bool:
        """Returns whether the loss is still the same if random and numpy.random return a fixed number."""
        with outside_state.drawing(number), contextlib.suppress(Exception):  # The code may need different numbers.
            return same(self._loss_in_python(self._step.batch), loss)
        return False

    def _loss_in_python(self, batch: Tensors, precision: str = "FP32") -> torch.Tensor:
        torch.manual_seed(SEED)
        if precision in pure_formats.FORMATS:
            return self._step.step_in_python(precision, batch)
        return self._in_python(batch, self._step.trained, 1, precision).loss

    def _in_python(self, batch: Tensors, trained: Tensors, steps: int, precision: str = "FP32") -> _Result:
        """Runs some steps without updating the weights, and returns the result of the last one."""
        step = self._step
        with self._weights(trained) as own:
            for _ in range(steps):
                with torch.enable_grad():
                    result = step.differentiate(precision, torch.tensor(1.0), {name: tensor.clone() for name, tensor in batch.items()},
                                                step.weights_of(batch), {name: own[name] for name in trained})
            now = self._own()
            return _Result(*result, {name: now[name].detach().clone() for name in step.state})

    def _own(self) -> Tensors:
        return {**dict(self._step.module.named_parameters()), **dict(self._step.module.named_buffers())}

    @contextlib.contextmanager
    def _weights(self, trained: Tensors) -> Iterator[Tensors]:
        """Sets trained tensors of the module to these values and yields all its tensors by name. Restores them afterwards."""
        own = self._own()
        values = {name: tensor.detach().clone() for name, tensor in own.items()}
        registered = [(part._buffers, dict(part._buffers)) for part in self._step.module.modules() if not isinstance(part, torch.jit.ScriptModule)]
        try:
            with torch.no_grad():
                for name, tensor in trained.items():
                    own[name].copy_(tensor)
            yield own
        finally:
            for current, before in registered:  # forward may have assigned other tensors.
                current.clear()
                current.update(before)
            with torch.no_grad():
                for name, tensor in own.items():
                    # An expanded tensor cannot be written in place, so forward has not changed it either.
                    if not same(tensor, values[name]):
                        tensor.copy_(values[name])

    def _require_same(self, got: List[torch.Tensor], wanted: _Result, where: str, cause: str) -> None:
        step = self._step
        expected: Dict[str, Optional[torch.Tensor]] = {"loss": wanted.loss}
        if step.by_example:
            expected["the losses of the examples"] = wanted.losses
        # A gradient that would be zero in exact arithmetic, such as that of a bias before a norm layer, has the rounding error of its
        # terms.
        norms = [gradient.double().norm() for gradient in wanted.gradients.values() if gradient is not None]
        rounding = {name: ROUNDING * torch.stack(norms).norm().item() for name in step.gradients if norms}
        expected.update((name, wanted.gradients[name]) for name in step.gradients)
        expected.update((name, wanted.state[name]) for name in step.changed)
        for (name, theirs), ours in zip(expected.items(), got):
            if theirs is None or not _agree(ours, theirs, rounding.get(name, 0.0)):
                raise self._difference(name, where, f"{_first(ours)} instead of {'none' if theirs is None else _first(theirs)}", cause)
        for name, tensor in wanted.state.items():
            if name not in step.changed and not same(tensor, step.state[name]):
                raise self._difference(name, where, "it changes in Python alone", cause)

    def _difference(self, name: str, where: str, what: str, cause: str) -> ExportError:
        return ExportError(f"the graph and the module {type(self._step.module).__name__} differ in {name}, {where}: {what}; {cause}")


def _examples(batch: Tensors) -> int:
    return len(next(iter(batch.values())))


def _given(step: Step, batch: Tensors) -> List[torch.Tensor]:
    """Returns the loss scale, the fields of the batch, and the weights of the examples, contiguous as in a worker."""
    return [tensor.contiguous() for tensor in step.arguments(batch)[:step.fields.stop]]


def _copies(tensors: Tensors) -> List[torch.Tensor]:
    """Returns copies, because a graph may change its inputs. They are contiguous, as all tensors of a worker are."""
    return [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors.values()]


def _agree(ours: torch.Tensor, theirs: torch.Tensor, rounding: float) -> bool:
    ours, theirs = ours.double(), theirs.double()
    # NaN makes the comparison false.
    return bool((ours - theirs).norm() <= TOLERANCE * theirs.norm() + rounding + 1e-12)


def _first(tensor: torch.Tensor) -> str:
    return f"{tensor.reshape(-1)[:1].double().tolist()}"
