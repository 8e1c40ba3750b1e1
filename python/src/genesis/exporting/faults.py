"""Explains exceptions of torch: the reason, and the line of the caller's code."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, Tuple

import torch

# Message of torch.export if a size became a number.
SIZE_BECAME_A_NUMBER = re.compile(r"specialized it to be a constant \((\d+)\)")
# Messages of torch for operators that accept only numbers as sizes.
SIZES_OF_THE_BATCH = ("SymIntArrayRef expected to contain only concrete integers", "Cannot call numel() on tensor with symbolic sizes",
                      "isIntList() INTERNAL ASSERT FAILED")
GUARD_OF_THE_SIZE = re.compile(r"batch = (\S+) in the specified range satisfy the generated guard (.+?)\.?$", re.MULTILINE)
# How to fix an error that depends on the batch size.
ONE_SIZE = "a module that takes batches of one size alone is exported with dynamic_batch=False"
# Patterns of torch's messages, each with its cause.
REASONS = (
    (r"aten\._ctc_loss\.Tensor", "ctc_loss reads lengths as numbers, one for each example, which a graph for any size of batch has not; write "
                                "its recursion with torch.logsumexp"),
    (r"torch\._C\.Generator", "it draws with a torch.Generator of its own, which no graph has; leave out generator=, and the job's seed decides"),
    (r"\.numpy\(\) is not supported", "it gives values to NumPy, which no graph does; compute with torch"),
)
# How to fix errors whose message from torch gives no advice.
CURES = {"strides should be multiple of 16 bytes": "grouped_mm takes rows of 4, 8, 12, ... numbers of FP32, and of 8, 16, 24, ... of BF16 and FP16: choose "
                                                   "such sizes, or in transformers experts_implementation='batched_mm'"}
# Maximum length of a line of torch's messages, some of which list everything that torch supports.
LONGEST_LINE = 400


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else "no message"
    cure = next((f"; {cure}" for message, cure in CURES.items() if message in line), "")
    return f"{type(error).__name__}: {line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + ' ...'}{cure}"


def of_types(error: BaseException, batch: Mapping[str, torch.Tensor]) -> str:
    """Returns a hint that names a float64 field if an operator failed because of types; otherwise an empty string."""
    names = [name for name, tensor in batch.items() if tensor.dtype == torch.float64]
    if not names or not any(each in str(error) for each in ("dtype", "Double", "double")):
        return ""
    return (f"; batch[{names[0]!r}] is of torch.float64 and the weights are of torch.float32: make the field float32, as "
            "array.astype('float32') does")


def reason(error: BaseException) -> str:
    """Returns the cause if it is known, otherwise the first line of the message."""
    text = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.name in ("pack_padded_sequence", "pad_packed_sequence") for frame in frames):
        return "pack_padded_sequence makes sizes of values; give whole sequences, and multiply what is behind their ends by a mask"
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        if any(frame.name == "gaussian_nll_loss" for frame in frames):
            return "gaussian_nll_loss checks var by its values; write 0.5 * (var.log() + (input - target) ** 2 / var)"
        if any(Path(frame.filename).parent.name == "distributions" for frame in frames):
            return "torch.distributions checks its arguments by their values; give validate_args=False"
        if any("for expert" in (frame.line or "") for frame in frames):
            return ("a loop over the experts that have rows decides by values of tensors, which no graph does; multiply in groups, with "
                    "torch.nn.functional.grouped_mm; in transformers, experts_implementation='grouped_mm' of the model does")
        return "it decides by values of tensors, which no graph does; use torch.where"
    if any(each in text for each in SIZES_OF_THE_BATCH):
        return "an operator, or its gradient, takes no size that depends on the batch; write it with others"
    constant = SIZE_BECAME_A_NUMBER.search(text)
    if constant is not None:
        return (f"it takes batches of {constant[1]} alone; x.shape[0] stays a size where len(x), range(x.shape[0]), a loop over x and the number "
                f"{constant[1]} do not, as in x.view(x.shape[0], -1)")
    guard = GUARD_OF_THE_SIZE.search(text)
    if guard is not None:
        condition = guard[2].replace(guard[1], "batch").replace(" and batch <= IntInfinity()", "")
        return f"some sizes of a batch are special to it; a graph would hold where {condition}"
    for pattern, cause in REASONS:
        if re.search(pattern, text):
            return f"{cause} ({first_line(error)})"
    return first_line(error)


def is_of_the_size(error: BaseException) -> bool:
    """Returns whether the error says that a graph would not be valid for all batch sizes."""
    text = str(error)
    return any(each in text for each in SIZES_OF_THE_BATCH) or bool(SIZE_BECAME_A_NUMBER.search(text) or GUARD_OF_THE_SIZE.search(text))


def place(error: BaseException) -> str:
    """Returns the line of the caller's code that raised the error, as text for a message; empty if there is none."""
    return _innermost([(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)])


def _innermost(lines: Sequence[Tuple[str, int]]) -> str:
    """Returns the last line in the caller's code; empty if there is none."""
    others = (str(Path(__file__).resolve().parent), str(Path(torch.__file__).resolve().parent), "<")
    own = [f", at {name}:{line}" for name, line in lines if not name.startswith(others)]
    return own[-1] if own else ""


def place_in_forward(function: Callable[[], Any]) -> str:
    """Returns the line of forward at which the function fails, or whose gradient fails; empty if there is none."""
    with warnings.catch_warnings(record=True) as caught:
        # In this mode autograd adds warnings with the lines of forward.
        warnings.simplefilter("always")
        try:
            with torch.autograd.set_detect_anomaly(True, check_nan=False):
                function()
        except Exception as error:  # Any exception shows the line.
            lines = [(frame, int(line)) for warning in caught
                     for frame, line in re.findall(r'File "(.+)", line (\d+)', str(warning.message))]
            return place(error) or _innermost(lines)
    return ""
