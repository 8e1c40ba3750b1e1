"""Predictions of a job's model, made by the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from genesis.connection import Connection
from genesis.errors import InvalidArgumentError
from genesis.requests import shown
from genesis.training.v1 import prediction_pb2

if TYPE_CHECKING:
    import numpy


class Prediction(Dict[str, "numpy.ndarray"]):
    """Outputs of a model by name, float32 with the batch as first dimension. All are of one version of the weights.

    Attributes:
        version: number of the version (``WeightsVersion.number``); 0 if the weights are those of a checkpoint.
        step: optimizer steps that led to the weights.
    """

    def __init__(self, response: prediction_pb2.PredictResponse) -> None:
        import numpy

        super().__init__({name: numpy.frombuffer(tensor.data, dtype="<f4").reshape(tuple(tensor.shape))
                          for name, tensor in response.outputs.items()})
        self.version: int = response.version
        self.step: int = response.step


# Whole numbers beyond this are not exact as float32.
_MAX_WHOLE = 1 << 24


def _tensor(name: Any, value: Any) -> prediction_pb2.Tensor:
    import numpy

    fault = ""
    try:
        if hasattr(value, "detach"):  # numpy has no BF16.
            value = value.detach().cpu()
            value = value.float() if value.is_floating_point() else value
        array = numpy.asarray(value)
        if array.dtype.kind not in "fiub":
            fault = f" of the type {array.dtype}"
        elif array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > _MAX_WHOLE:
            fault = f", and float32 holds whole numbers up to {_MAX_WHOLE}"
    except (TypeError, ValueError, RuntimeError) as error:
        fault = f" ({error})"
    if fault:
        raise InvalidArgumentError(f"input {shown(name)} is {shown(value)}{fault}; accepted: real numbers, as an array, a tensor or a list")
    array = numpy.asarray(array, dtype="<f4", order="C")
    return prediction_pb2.Tensor(shape=array.shape, data=array.tobytes())


def predict(connection: Connection, job_id: str, inputs: Mapping[str, Any], checkpoint_id: str, timeout: Optional[float]) -> Prediction:
    if not isinstance(inputs, Mapping):
        raise InvalidArgumentError(f"inputs is {shown(inputs)}; accepted: a dict of the model's inputs by name")
    tensors = {name: _tensor(name, value) for name, value in inputs.items()}
    return Prediction(connection.call("Predict", timeout=timeout, job_id=job_id, checkpoint_id=checkpoint_id, inputs=tensors))
