"""Predictions of a job's model, computed by the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from genesis.connection import Connection
from genesis.data import array_of
from genesis.errors import InvalidArgumentError
from genesis.requests import shown
from genesis.training.v1 import prediction_pb2
from genesis.weights import ELEMENT_TYPES

if TYPE_CHECKING:
    import numpy


class Prediction(Dict[str, "numpy.ndarray"]):
    """Outputs of a model by name, with the batch as first dimension. All are of one version of the weights.

    Attributes:
        version: number of the version (``WeightsVersion.number``); 0 if the weights are those of a checkpoint.
        step: optimizer steps that led to the weights.
    """

    def __init__(self, response: prediction_pb2.PredictResponse) -> None:
        super().__init__({name: _array(tensor).reshape(tuple(tensor.shape)) for name, tensor in response.outputs.items()})
        self.version: int = response.version
        self.step: int = response.step


# numpy types that the API does not name, each with the next wider type that is sent instead.
_WIDER = {"u2": "I32", "u4": "I64", "u8": "I64", "f16": "F64"}
_NAMES = {**_WIDER, **{kind: name for name, (_, kind) in ELEMENT_TYPES.items() if kind}}


def _array(tensor: prediction_pb2.Tensor) -> "numpy.ndarray":
    import numpy

    if tensor.type == "BF16":  # numpy has no BF16, which is the upper half of a float32.
        return (numpy.frombuffer(tensor.data, dtype="<u2").astype("<u4") << 16).view("<f4")
    return numpy.frombuffer(tensor.data, dtype=f"<{ELEMENT_TYPES[tensor.type][1]}")


def _tensor(name: Any, value: Any) -> prediction_pb2.Tensor:
    import numpy

    fault = ""
    try:
        array = array_of(value)
        kind = array.dtype.str[1:]
        if kind not in _NAMES:
            fault = f" of the type {array.dtype}"
        elif kind == "u8" and array.size and array.max() > numpy.iinfo("i8").max:
            fault = ", and int64 does not hold it"
    except (TypeError, ValueError, RuntimeError) as error:
        fault = f" ({error})"
    if fault:
        raise InvalidArgumentError(f"input {shown(name)} is {shown(value)}{fault}; accepted: real numbers, as an array, a tensor or a list")
    array = numpy.asarray(array, dtype=f"<{ELEMENT_TYPES[_NAMES[kind]][1]}", order="C")
    return prediction_pb2.Tensor(shape=array.shape, data=array.tobytes(), type=_NAMES[kind])


def predict(connection: Connection, job_id: str, inputs: Mapping[str, Any], checkpoint_id: str, timeout: Optional[float]) -> Prediction:
    if not isinstance(inputs, Mapping):
        raise InvalidArgumentError(f"inputs is {shown(inputs)}; accepted: a dict of the model's inputs by name")
    tensors = {name: _tensor(name, value) for name, value in inputs.items()}
    return Prediction(connection.call("Predict", timeout=timeout, job_id=job_id, checkpoint_id=checkpoint_id, inputs=tensors))
