"""Exports an ``nn.Module`` to a file that the trainer runs without Python.

For each precision the file contains a graph of ATen operators that computes the loss and the gradients of one micro-batch. It also
contains a graph of the held-out loss, one of predictions if there are any, and the initial weights. See docs/exported_modules.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Optional, Sequence, Union

import torch

from genesis.errors import ExportError
from genesis.exporting import exported_file, tracing
from genesis.exporting.inputs import check_batch, check_module
from genesis.exporting.losses import Loss, function_of
from genesis.exporting.predictions import Predict
from genesis.exporting.programs import Programs
from genesis.exporting.step import PRECISIONS, Step
from genesis.progress import Line

__all__ = ["ExportError", "export"]


def export(module: torch.nn.Module, batch: Mapping[str, torch.Tensor], path: Union[str, Path], loss: Loss = None,
           precisions: Optional[Sequence[str]] = None, dynamic_batch: bool = True, predict: Predict = None) -> Path:
    """Exports a module with its loss to a ``.pt2`` file, for ``model.exported`` of a job file.

    Any thread may call it. Exports run one at a time, and the module must not be trained meanwhile. Progress is shown on a line of stderr if
    stderr is a terminal; otherwise the logger ``genesis`` logs it at INFO. On Linux without CUDA, forks of this process trace some of
    the graphs at the same time, at most one fewer than the process has processors.

    Args:
        module: the module to train. Its mode (train or eval) and its weights do not change.
        batch: a sample batch with every field of the dataset, batch dimension first. Unless ``dynamic_batch=False``, it has at least two
            examples, and other batches may have another size.
        path: the file to write; ends in ``.pt2``.
        loss: one of the following:
            ``None`` if ``module(**batch)`` returns the mean loss, or an object or dict with ``loss``;
            ``"mse"``, ``"cross_entropy"`` or ``"huber"`` to compare ``module(*fields)`` with the field ``target``;
            a function of the module and the batch that returns the mean loss, or the losses of the examples, a tensor [batch], whose mean
            is minimized. Prioritized sampling requires the losses of the examples.
        precisions: the precisions in which the file can be trained, FP32 among them: ``FP32``, ``MIXED_BF16``, ``MIXED_FP16``, ``BF16``,
            ``FP16``. Default: all; ``BF16`` or ``FP16`` is left out if the module does not run with weights of that type.
        dynamic_batch: ``False`` for a module that supports only the size of ``batch``, such as a contrastive loss with
            ``torch.arange(8)``. The job then has that ``training.batch_size`` and drops shorter batches.
        predict: a function of the module in eval mode and a batch that returns a dict of tensors by name, each with the batch as first
            dimension. The fields of the batch that it reads become the inputs of predictions. Names have 1 to 64 letters, digits, '_' and
            '.'; there are at most 64.

    Returns:
        The path.

    Raises:
        ExportError: the module cannot be exported. The message names the cause.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise ExportError(f"path is {str(path)!r}; accepted: a path that ends in .pt2")
    if precisions is not None and (any(each not in PRECISIONS for each in precisions) or "FP32" not in precisions):
        raise ExportError(f"precisions is {list(precisions)!r}; accepted: FP32, and any of {', '.join(PRECISIONS[1:])}")
    check_module(module)
    check_batch(batch, dynamic_batch)
    step = Step(module, batch, function_of(loss, batch), dynamic_batch, is_loss_of_module=loss is None)
    with Line(f"exporting {type(module).__name__}") as line:
        try:
            programs = tracing.run_alone(lambda: Programs(step, precisions, predict, line.say))
            line.say("writing the file")
            exported_file.write(path, programs)
        finally:
            step.restore_values()
    return path
