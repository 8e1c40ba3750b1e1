"""The predictions of a module: what a function of the module and a batch returns in eval mode, as a graph of an exported file."""

from __future__ import annotations

import collections
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

import torch

from genesis.errors import ExportError
from genesis.exporting import faults
from genesis.exporting.losses import describe
from genesis.exporting.step import TYPES, Step

Tensors = Dict[str, torch.Tensor]
Predict = Optional[Callable[[torch.nn.Module, Tensors], Mapping[str, torch.Tensor]]]

# Name of the graph.
PREDICTION = "prediction"
MOST_OUTPUTS = 64
OUTPUT_NAME = re.compile(r"[A-Za-z0-9_.]{1,64}")
NAMES = "1 to 64 letters, digits, '_' and '.'"


class Prediction:
    """The function ``predict`` as a function of tensors: inputs, trained parameters, state.

    Attributes:
        inputs: the fields of the batch that the function reads, in the order of the batch.
        outputs: the names of the tensors that it returns.
    """

    def __init__(self, step: Step, predict: Any) -> None:
        """Runs the function eagerly, so that its errors have their own message. Call it after ``step.try_eagerly``.

        Raises:
            ExportError: the function fails, reads no field, or returns something else than tensors by name.
        """
        if not callable(predict):
            raise ExportError(f"predict is a {type(predict).__name__}; accepted: a function of the module and a batch that returns tensors by name")
        self._step, self._predict = step, predict
        fields = {name: tensor.clone() for name, tensor in step.batch.items()}
        weights = {name: tensor.clone() for name, tensor in (*step.trained.items(), *step.state.items())}
        reading = _Reading(fields)
        with step.kept(training=False):
            try:
                with step.in_eval_mode(weights):
                    self.outputs = list(self.values(reading, len(next(iter(fields.values())))))
            except ExportError:
                raise
            except Exception as error:
                if isinstance(error, KeyError) and error.args and error.args[0] in reading.missing:
                    raise ExportError(f"predict reads batch[{error.args[0]!r}], and batch has no such field{faults.place(error)}; it has "
                                      f"{', '.join(step.batch)}") from error
                raise ExportError(f"predict fails on the batch in eval mode: {faults.first_line(error)}{faults.of_types(error, step.batch)}"
                                  f"{faults.place(error)}; accepted: a function of the module and a dict of {', '.join(step.batch)}") from error
        self.inputs = [name for name in step.batch if name in reading.read]
        if not self.inputs:
            raise ExportError(f"predict reads no field of the batch; accepted: a function that computes its result from {', '.join(step.batch)}")
        # The graph changes copies of the tensors that the function changes in place. A clone starts at version 0.
        self._changed_fields = {name for name, tensor in fields.items() if tensor._version > 0}
        self._changed_weights = {name for name, tensor in weights.items() if tensor._version > 0}

    @property
    def fields(self) -> range:
        """Positions of the arguments that have the batch as their first dimension."""
        return range(len(self.inputs))

    def arguments(self) -> Tuple[torch.Tensor, ...]:
        """Returns the arguments of the graph."""
        return (*(self._step.batch[name] for name in self.inputs), *self._step.trained.values(), *self._step.state.values())

    def run(self, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Returns the outputs in their order."""
        step, count = self._step, len(self.inputs)
        batch = {name: tensor.clone() if name in self._changed_fields else tensor for name, tensor in zip(self.inputs, tensors)}
        weights = dict(zip((*step.trained, *step.state), tensors[count:]))
        with step.in_eval_mode(weights, self._changed_weights), self._gradients():
            given = self._predict(step.module, batch)
        return tuple(given[name].detach() if given[name].requires_grad else given[name] for name in self.outputs)

    def values(self, batch: Mapping[str, torch.Tensor], count: int) -> Tensors:
        """Returns the outputs of the function for a batch of ``count`` examples, with the current mode and tensors of the module.

        Raises:
            ExportError: the outputs are not tensors by name with the batch as first dimension.
        """
        with self._gradients():
            given = self._predict(self._step.module, batch)
        if not isinstance(given, Mapping) or not 1 <= len(given) <= MOST_OUTPUTS:
            raise ExportError(f"predict returns {f'{len(given)} tensors' if isinstance(given, Mapping) else describe(given)}; accepted: a dict of 1 to "
                              f"{MOST_OUTPUTS} tensors by name")
        for name, value in given.items():
            if not isinstance(name, str) or not OUTPUT_NAME.fullmatch(name):
                raise ExportError(f"predict returns a tensor with the name {repr(name)[:100]}; accepted: {NAMES}")
            if not isinstance(value, torch.Tensor) or value.dtype not in TYPES or value.dim() == 0 or value.shape[0] != count:
                raise ExportError(f"predict returns as {name} {describe(value)} for {count} examples; accepted: a tensor [{count}, ...] of "
                                  f"{', '.join(TYPES.values())}")
        return {name: value.detach() for name, value in given.items()}

    def wanted(self, batch: Tensors) -> Tensors:
        """Returns the outputs for a batch with all its fields, by their names in messages."""
        read = {name: batch[name] for name in self.inputs}
        return {f"the prediction {name}": value.clone() for name, value in self.values(read, len(batch[self.inputs[0]])).items()}

    def given(self, batch: Tensors) -> List[torch.Tensor]:
        """Returns the inputs of the graph for a batch, contiguous as in a worker."""
        return [batch[name].contiguous() for name in self.inputs]

    def _gradients(self) -> torch.set_grad_enabled:
        return torch.set_grad_enabled(self._step.differentiates_in_evaluation)


class _Reading(collections.UserDict):
    """The fields of a batch, with the names of those that were read."""

    def __init__(self, fields: Tensors) -> None:
        self.read: Set[str] = set()
        self.missing: Set[Any] = set()
        super().__init__()
        self.data = dict(fields)

    def __getitem__(self, name: Any) -> torch.Tensor:
        (self.read if name in self.data else self.missing).add(name)
        return self.data[name]

    def __contains__(self, name: Any) -> bool:
        (self.read if name in self.data else self.missing).add(name)
        return name in self.data
