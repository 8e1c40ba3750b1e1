"""Reads from the caller's environment whether reduced precision is allowed, by the daemon's rules (config/precision/gate.h)."""

from __future__ import annotations

import os
import re
import warnings

from genesis.requests import shown

VARIABLE, FLAG = "ENABLE_FP16_TRAINING", "fp16_training"
_OUR_FLAG = re.compile(rf"(?<![\w.-]){FLAG}(?![\w.-])", re.IGNORECASE | re.ASCII)


def allows_reduced_precision() -> bool:
    """Returns whether ``ENABLE_FP16_TRAINING`` is exactly ``true`` and ``FEATURE_FLAGS`` does not contain ``fp16_training:false``.

    An invalid value disables reduced precision, with a RuntimeWarning."""
    value = os.environ.get(VARIABLE)
    if value not in (None, "true", "false"):
        _warn(f"{VARIABLE} is {shown(value)}; accepted: exactly true or false")
    allowed = value == "true"
    for item in os.environ.get("FEATURE_FLAGS", "").split(","):
        item = item.strip(" \t\n\v\f\r")
        if not _OUR_FLAG.search(item) or item == f"{FLAG}:true":
            continue
        allowed = False
        if item != f"{FLAG}:false":
            _warn(f"FEATURE_FLAGS has {shown(item)}; accepted: {FLAG}:true or {FLAG}:false")
    return allowed


def _warn(text: str) -> None:
    warnings.warn(f"{text}; reduced precision is disabled", RuntimeWarning, stacklevel=4)
