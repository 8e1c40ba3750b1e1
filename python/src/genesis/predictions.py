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


def _tensor(name: Any, value: Any) -> prediction_pb2.Tensor:
    import numpy

    try:
        array = numpy.asarray(value, dtype="<f4", order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"input {shown(name)} is {shown(value)}; accepted: numbers, as an array, a tensor on the CPU or a list "
                                   f"({error})") from None
    return prediction_pb2.Tensor(shape=array.shape, data=array.tobytes())


def predict(connection: Connection, job_id: str, inputs: Mapping[str, Any], checkpoint_id: str, timeout: Optional[float]) -> Prediction:
    if not isinstance(inputs, Mapping):
        raise InvalidArgumentError(f"inputs is {shown(inputs)}; accepted: a dict of the model's inputs by name")
    tensors = {name: _tensor(name, value) for name, value in inputs.items()}
    return Prediction(connection.call("Predict", timeout=timeout, job_id=job_id, checkpoint_id=checkpoint_id, inputs=tensors))
