"""Converts torch optimizers and schedules to fields of a job file."""

from __future__ import annotations

import functools
import numbers
import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping

from genesis.errors import InvalidArgumentError
from genesis.training.v1 import field_rule_pb2, training_pb2

if TYPE_CHECKING:
    import torch

# Maximum number of patterns in one parameter group of a job.
_MAX_PATTERNS = training_pb2.ParameterGroupSpec.DESCRIPTOR.fields_by_name["parameters"].GetOptions().Extensions[field_rule_pb2.max_items]
# Options that jobs support only with these values.
_FIXED = {"amsgrad": False, "maximize": False, "dampening": 0}
# Options that must be equal in all groups, with their names in a job file.
_SHARED = {"eps": "epsilon", "momentum": "momentum", "nesterov": "nesterov", "betas": "betas"}


def _kind(optimizer: "torch.optim.Optimizer") -> str:
    import torch

    kinds = {torch.optim.AdamW: "ADAMW", torch.optim.Adam: "ADAM", torch.optim.SGD: "SGD"}
    kind = kinds.get(type(optimizer))
    if kind is None:
        raise InvalidArgumentError(f"optimizer is of {type(optimizer).__name__}; accepted: torch.optim.AdamW, Adam or SGD")
    if kind == "ADAM" and optimizer.defaults.get("decoupled_weight_decay"):
        return "ADAMW"
    return kind


def _or_none(value: float) -> float:
    """Returns the value for a job file, where 0 selects the default and -1 means 0."""
    return -1.0 if value == 0 else value


def _escaped(name: str) -> str:
    """Returns a pattern that matches exactly this name."""
    return re.sub(r"[*?\\]", r"\\\g<0>", name)


@functools.lru_cache(maxsize=4096)
def _expression(pattern: str) -> "re.Pattern[str]":
    wild = {"*": ".*", "?": "."}
    parts = re.findall(r"\\[*?\\]|.", pattern, re.DOTALL)
    return re.compile("".join(wild.get(each) or re.escape(each[-1]) for each in parts), re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """Returns whether a pattern matches a name by the worker's rules: ``*`` is any characters, ``?`` is one character, and ``\\`` escapes
    either."""
    return _expression(pattern).fullmatch(name) is not None


def patterns(names: Iterable[str], others: Iterable[str]) -> List[str]:
    """Returns a short list of patterns that together match all of ``names`` and none of ``others``."""
    others = list(others)
    found: Dict[str, None] = {}
    for name in names:
        if any(matches(pattern, name) for pattern in found):
            continue
        wide = ["*." + _escaped(name.rpartition(".")[2]), re.sub(r"\d+", "*", _escaped(name))] if "." in name else []
        found[next((each for each in wide if not any(matches(each, other) for other in others)), _escaped(name))] = None
    return list(found)


def _names(module: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> List[List[str]]:
    """Returns the names of the trained parameters in each group.

    Raises:
        InvalidArgumentError: the optimizer has a parameter of another module, or lacks a trained one.
    """
    name_of = {id(tensor): name for name, tensor in module.named_parameters() if tensor.requires_grad}
    frozen = {id(tensor) for tensor in module.parameters() if not tensor.requires_grad}
    groups: List[List[str]] = []
    for number, group in enumerate(optimizer.param_groups):
        groups.append([])
        for tensor in group["params"]:
            if id(tensor) in name_of:
                groups[-1].append(name_of[id(tensor)])
            elif id(tensor) not in frozen:
                raise InvalidArgumentError(f"optimizer.param_groups[{number}] has a parameter of shape {tuple(tensor.shape)} that is "
                                           "not one of the module's; create the optimizer from module.parameters()")
    left = sorted(set(name_of.values()) - {name for group in groups for name in group})
    if left:
        raise InvalidArgumentError(f"optimizer has {len(left)} of the module's trained parameters in no group, {left[0]} the first; "
                                   "add them, or set requires_grad_(False) on what is not trained")
    return groups


def optimizer_spec(module: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> Mapping[str, Any]:
    """Returns the field ``optimizer`` of a job that updates the module as ``optimizer`` would.

    Parameter groups become patterns of parameter names.

    Raises:
        InvalidArgumentError: jobs do not support the optimizer, its options, its hooks or its schedule, or it has run steps.
    """
    kind = _kind(optimizer)
    if optimizer.state:
        raise InvalidArgumentError("optimizer has already run steps, and a job begins without its state; give a new one, or continue a job "
                                   "by start_from_checkpoint")
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise InvalidArgumentError("optimizer has a schedule of torch.optim.lr_scheduler, whose steps nobody makes; give schedule= and an optimizer "
                                   "without one")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise InvalidArgumentError("optimizer has hooks around step(), which no job runs; give one without")
    groups = [(group, names) for group, names in zip(optimizer.param_groups, _names(module, optimizer)) if names]
    for number, (group, _) in enumerate(groups):
        for option, only in _FIXED.items():
            if group.get(option, only) != only:
                raise InvalidArgumentError(f"optimizer.param_groups[{number}] has {option}={group[option]!r}; accepted: {only!r}")
        for option in _SHARED:
            if group.get(option) != groups[0][0].get(option):
                raise InvalidArgumentError(f"optimizer.param_groups[{number}] has {option}={group[option]!r} and the first one "
                                           f"{groups[0][0][option]!r}; accepted: one value for all groups")
        for option in ("lr", "eps"):
            if option in group and not float(group[option]) > 0:
                raise InvalidArgumentError(f"optimizer.param_groups[{number}] has {option}={group[option]!r}; accepted: above 0"
                                           + ("; requires_grad_(False) keeps parameters as they are" if option == "lr" else ""))
    # The largest group becomes the default of the job, without patterns.
    base, most = max(groups, key=lambda each: len(each[1]))
    # A learning rate may be a tensor.
    spec: Dict[str, Any] = {"kind": kind, "learning_rate": float(base["lr"]), "weight_decay": _or_none(base["weight_decay"])}
    for option, name in _SHARED.items():
        if option == "betas" and option in base:
            spec["beta1"], spec["beta2"] = map(_or_none, map(float, base[option]))
        elif option in base:
            spec[name] = base[option]
    trained = [name for _, names in groups for name in names]
    divided: List[Dict[str, Any]] = []
    for group, names in groups:
        if names is most:
            continue
        matching = patterns(names, set(trained) - set(names))
        divided += [{"parameters": matching[i:i + _MAX_PATTERNS], "learning_rate": float(group["lr"]),
                     "weight_decay": _or_none(group["weight_decay"])} for i in range(0, len(matching), _MAX_PATTERNS)]
    if divided:
        spec["parameter_groups"] = divided
    return spec


def schedule_spec(schedule: Mapping[int, float]) -> Mapping[str, Any]:
    """Returns the field ``optimizer.schedule`` for a dict from steps to factors.

    Raises:
        InvalidArgumentError: the schedule is not a dict from whole numbers to numbers.
    """
    if not isinstance(schedule, Mapping) or not all(isinstance(step, numbers.Integral) and isinstance(factor, numbers.Real)
                                                    for step, factor in schedule.items()):
        raise InvalidArgumentError(f"schedule is {str(schedule)[:200]}; accepted: a dict from steps (whole numbers) to factors of the "
                                   "learning rate, such as {0: 0.1, 100: 1.0}")
    return {"kind": "TABLE", "points": [{"step": int(step), "factor": float(schedule[step])} for step in sorted(schedule)]}
