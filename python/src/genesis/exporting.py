"""Exports an ``nn.Module`` to a file that the trainer runs without Python.

For each precision the file contains a graph of ATen operators that computes the loss and the gradients of one micro-batch. It also
contains a graph of the held-out loss, and the initial weights. See docs/exported_modules.md.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from genesis import as_in_eager, exported_file, faults, for_nativert, held_out, outside_state, pure_formats, recomputation, runtime, tracing
from genesis.comparison import TRIED_EXAMPLES, Comparison
from genesis.errors import ExportError
from genesis.outside_state import same

__all__ = ["ExportError", "export"]

Loss = Union[None, str, Callable[[torch.nn.Module, Dict[str, torch.Tensor]], torch.Tensor]]

TARGET = "target"
# Autocast type of each precision with FP32 weights.
AUTOCAST = {"FP32": None, "MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}
PRECISIONS = (*AUTOCAST, *pure_formats.FORMATS)
LOSSES = {"mse": torch.nn.functional.mse_loss, "cross_entropy": torch.nn.functional.cross_entropy,
          "huber": torch.nn.functional.huber_loss}
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
EVALUATION = "where forward gives something else in eval mode, a function as loss= can ask module.training"
# Maximum number of conditions on the batch size that are tested.
MOST_CONDITIONS = 8


def export(module: torch.nn.Module, batch: Mapping[str, torch.Tensor], path: Union[str, Path], loss: Loss = None,
           precisions: Optional[Sequence[str]] = None, dynamic_batch: bool = True) -> Path:
    """Exports a module with its loss to a ``.pt2`` file, for ``model.exported`` of a job file.

    Any thread may call it. Exports run one at a time, and the module must not be trained meanwhile.

    Args:
        module: the module to train. Its mode (train or eval) and its weights do not change.
        batch: a sample batch with every field of the dataset, batch dimension first, and at least two examples. Other batches may have
            another size unless ``dynamic_batch=False``.
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
    _check_module(module)
    _check_batch(batch, dynamic_batch)
    step = Step(module, batch, _loss_function(loss, batch), dynamic_batch, is_loss_of_module=loss is None)
    try:
        exported_file.write(path, step, tracing.run_alone(lambda: step.programs(precisions)))
    finally:
        step.restore_values()
    return path


def _check_module(module: torch.nn.Module) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"module is a {type(module).__name__}; accepted: a torch.nn.Module")
    if isinstance(module, (torch.jit.ScriptModule, torch._dynamo.eval_frame.OptimizedModule)):
        raise ExportError(f"module is a {type(module).__name__}; accepted: the module that torch.jit or torch.compile was given")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.lazy.LazyModuleMixin) and part.has_uninitialized_params():
            raise ExportError(f"{name or 'module'} is lazy and has no shapes yet; run the module on a batch before")
        for what, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
            if tensor.is_meta:
                raise ExportError(f"{name + '.' if name else ''}{what} is on the device meta and has no values; load the weights before")
            if tensor.layout != torch.strided:
                raise ExportError(f"{name + '.' if name else ''}{what} is of the layout {tensor.layout}; accepted: torch.strided, as tensor.to_dense() "
                                  "makes it")
            if isinstance(tensor, torch.nn.Parameter) and any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride())):
                raise ExportError(f"the parameter {name + '.' if name else ''}{what} is expanded: several of its elements are one number, which no "
                                  "optimizer can update; give torch.nn.Parameter(tensor.clone())")
            if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
                raise ExportError(f"the parameter {name + '.' if name else ''}{what} has a hook of its gradient, which no graph has; remove it, and "
                                  "hook a tensor that forward computes, or give the optimizer groups")
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            warnings.warn(f"{name or 'module'} has get_extra_state(), which no file of a job holds: load a checkpoint with "
                          "load_state_dict(..., strict=False)", stacklevel=3)
        if isinstance(part, torch.nn.modules.batchnorm._NormBase) and part.track_running_stats and part.momentum is None:
            raise ExportError(f"{name or 'module'} has momentum=None, an average over all batches that no graph can hold; give it a number")


def _check_batch(batch: Mapping[str, torch.Tensor], dynamic: bool) -> None:
    if not batch:
        raise ExportError("batch is empty; accepted: a dict of tensors, one for each field of the dataset")
    sizes = {}
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise ExportError(f"batch[{name!r}] is a {type(tensor).__name__}; accepted: a torch.Tensor")
        if tensor.dtype not in exported_file.FIELD_TYPES:
            raise ExportError(f"batch[{name!r}] is of {tensor.dtype}; accepted: {', '.join(map(str, exported_file.FIELD_TYPES))}")
        if tensor.dim() == 0:
            raise ExportError(f"batch[{name!r}] has no dimensions; accepted: the batch as first dimension")
        sizes[name] = tensor.shape[0]
    if len(set(sizes.values())) > 1:
        raise ExportError(f"the fields of the batch have {sizes} examples; accepted: the same number in each")
    count, least = next(iter(sizes.values())), 2 if dynamic else 1
    if count < least:
        raise ExportError(f"the batch has {count} {'example' if count == 1 else 'examples'}; accepted: {least} or more"
                          + (", because a size of 1 is a special case to PyTorch" if dynamic else ""))


def _distinct(module: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """Cuts the batch to a number of examples that equals no other size, because a tracer gives equal sizes the same symbol."""
    tensors = [*module.parameters(), *module.buffers()]
    others = {size for tensor in tensors for size in tensor.shape} | {size for tensor in batch.values() for size in tensor.shape[1:]}
    most = next(iter(batch.values())).shape[0]
    size = next((size for size in range(most, 1, -1) if size not in others), most)
    return {name: tensor[:size] for name, tensor in batch.items()}


def _does_not_take(module: torch.nn.Module, fields: Mapping[str, torch.Tensor]) -> str:
    """Returns why forward does not accept the fields as keyword arguments; empty if it does."""
    try:
        inspect.signature(module.forward).bind(**fields)
    except TypeError as error:
        return f"forward of {type(module).__name__}: {error}"
    except ValueError:  # Without a signature.
        pass
    return ""


def _loss_function(loss: Loss, batch: Mapping[str, torch.Tensor]):
    if isinstance(loss, torch.nn.Module) or getattr(loss, "__module__", "") == "torch.nn.functional":
        name = getattr(loss, "__name__", f"torch.nn.{type(loss).__name__}")
        raise ExportError(f"loss is {name}, which takes an output and a target; accepted: a function of module and batch, as lambda module, batch: "
                          f"{'loss' if isinstance(loss, torch.nn.Module) else name}(module(batch['x']), batch['target']), or "
                          f"{', '.join(map(repr, LOSSES))}")
    if callable(loss):
        return loss
    if loss is None:
        def own(module, fields):
            fault = _does_not_take(module, fields)
            if fault:
                raise ExportError(f"{fault}; without loss=, {type(module).__name__}(**batch) must return it: give loss='cross_entropy', "
                                  f"'mse', 'huber' or a function of module and batch, or call its arguments {', '.join(fields)}")
            result = module(**fields)
            if isinstance(result, Mapping):
                if "loss" not in result:
                    raise ExportError(f"{type(module).__name__} gives a dict of {', '.join(map(str, result))}; accepted without loss=: one with "
                                      "loss; else give a function of module and batch as loss=")
                return result["loss"]
            return getattr(result, "loss", result)
        return own
    if loss not in LOSSES:
        raise ExportError(f"loss is {loss!r}; accepted: None, {', '.join(map(repr, LOSSES))}, or a function of the "
                          "module and the batch")
    if TARGET not in batch:
        raise ExportError(f"loss is {loss!r} and batch has no field {TARGET!r}; it has {', '.join(batch)}")
    function, target = LOSSES[loss], batch[TARGET]
    if not target.is_floating_point() and (loss != "cross_entropy" or target.dtype != torch.int64):
        raise ExportError(f"batch[{TARGET!r}] is of {target.dtype}; accepted with loss={loss!r}: torch.float32"
                          + (" (a probability of each class), or torch.int64 (the number of the class)" if loss == "cross_entropy" else ""))

    def named(module, fields):
        output = module(*(tensor for name, tensor in fields.items() if name != TARGET))
        if not isinstance(output, torch.Tensor):
            raise ExportError(f"{type(module).__name__} gives {_describe(output)}; accepted with loss={loss!r}: a tensor; a function of module and "
                              "batch as loss= takes what it needs")
        target = fields[TARGET]
        # Class indices have one value for each position of an output [batch, classes, ...].
        wanted = output.shape if target.is_floating_point() else (*output.shape[:1], *output.shape[2:])
        if tuple(target.shape[1:]) != tuple(wanted[1:]):
            raise ExportError(f"{type(module).__name__} gives {_describe(output)}, and batch[{TARGET!r}] is {_describe(target)}; accepted "
                              f"with loss={loss!r}: {'one shape' if target.is_floating_point() else f'the shape {list(wanted)}'}")
        return function(output.float(), target)
    return named


class Step:
    """The training step of one micro-batch as a function of tensors: scale, fields, trained parameters, state.

    If the loss is per example, the weights of the examples follow the fields in the arguments, and the losses follow the loss in the
    results.
    """

    def __init__(self, module: torch.nn.Module, batch: Mapping[str, torch.Tensor], loss, dynamic: bool, is_loss_of_module: bool):
        self.module = module
        self.loss = loss
        self.is_loss_of_module = is_loss_of_module
        # Loss function of each pure precision, set by try_in_format.
        self.cast_losses: Dict[str, pure_formats.Loss] = {}
        # Why the module has no graph of a precision.
        self.without: Dict[str, str] = {}
        # Whether the graphs support any batch size or only that of `batch`.
        self.dynamic = dynamic
        tried = _distinct(module, batch) if dynamic else batch
        self.batch = {name: tensor.detach() for name, tensor in tried.items()}
        self.is_cut = any(len(tensor) < len(batch[name]) for name, tensor in tried.items())
        named = dict(module.named_parameters())
        # Copies, because running the module may change its own tensors. restore_values undoes such changes.
        self.trained = {name: tensor.detach().clone() for name, tensor in named.items() if tensor.requires_grad}
        self.modes = {name: part.training for name, part in module.named_modules()}
        if not self.trained:
            raise ExportError(f"{type(module).__name__} has no parameter with requires_grad; there is nothing to train")
        for name, tensor in named.items():
            if tensor.dtype != torch.float32:
                raise ExportError(f"the parameter {name} is of {tensor.dtype}; accepted: torch.float32, as "
                                  "module.float() makes it")
            bad = torch.nonzero(~torch.isfinite(tensor.detach()))
            if len(bad):
                place = bad[0].tolist()
                raise ExportError(f"the parameter {name} is {tensor.detach()[tuple(place)].item()} at {place}; accepted: finite numbers")
        self.state = {name: tensor.detach().clone() for name, tensor in named.items() if not tensor.requires_grad}
        self.state.update({name: tensor.detach().clone() for name, tensor in module.named_buffers()})
        for name, tensor in self.state.items():
            if tensor.dtype not in exported_file.TYPES:
                raise ExportError(f"the tensor {name} is of {tensor.dtype}; accepted: {', '.join(map(str, exported_file.TYPES))}; a complex one as "
                                  "torch.view_as_real of it, which forward gives to torch.view_as_complex")
        kept = module.state_dict().keys()
        self.passing = [name for name in self.state if name not in kept]
        first = {id(tensor): name for name, tensor in (*named.items(), *module.named_buffers()) if name in kept}
        every = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
        self.tied = {name: first[id(tensor)] for name, tensor in every if name in kept and first.get(id(tensor), name) != name}
        # Tensors that forward creates from numbers, such as torch.tensor(0.5), by program.
        self.constants: Dict[str, List[torch.Tensor]] = {}
        # Set by try_eagerly: whether the loss has one value per example, the trained tensors on which it depends, and the state that a step
        # changes.
        self.by_example = False
        self.gradients: List[str] = []
        self.changed: List[str] = []
        # Conditions on the batch size that held in the traces of FP32 and evaluation, each with a size for which it does not hold.
        self.conditions: Dict[str, List[Tuple[str, int]]] = {}
        # Tensors that forward changes in place in eval mode. The graph of the held-out loss changes copies.
        self.changed_in_evaluation: List[str] = []
        # Number of quotients in the held-out loss (see held_out.give_parts).
        self.held_out_quotients = 0
        # Whether forward or the loss needs gradients in eval mode too, for example for torch.autograd.grad.
        self.differentiates_in_evaluation = False
        # Tracing methods that have not failed yet, the fastest first.
        self.traces = (tracing.by_batch, tracing.by_batch_in_python, tracing.by_every_size) if dynamic else (tracing.of_one_size,)

    def weights_of(self, batch):
        """Returns weights for the examples, all different so that a comparison detects a mix-up; None if the loss is one number."""
        return torch.linspace(0.5, 1.0, len(next(iter(batch.values())))) if self.by_example else None

    def arguments(self, batch=None, precision: str = "FP32"):
        """Returns the arguments of the graph of a precision. In pure FP16 and BF16 the trained tensors have that type. All others have the
        module's types, and the graph casts them."""
        batch = self.batch if batch is None else batch
        weights = [self.weights_of(batch)] if self.by_example else []
        trained = self.in_format(precision, self.trained)
        return (torch.tensor(1.0), *batch.values(), *weights, *trained.values(), *self.state.values())

    @staticmethod
    def in_format(precision: str, trained):
        """Returns trained tensors in the type that the graph of the precision expects."""
        return {name: pure_formats.cast(tensor, pure_formats.FORMATS.get(precision)) for name, tensor in trained.items()}

    @property
    def fields(self) -> range:
        """Positions of the arguments that have the batch as their first dimension."""
        return range(1, 1 + len(self.batch) + self.by_example)

    def _split(self, tensors):
        fields = len(self.fields)
        batch = dict(zip(self.batch, tensors[:fields]))
        trained = dict(zip(self.trained, tensors[fields:fields + len(self.trained)]))
        state = dict(zip(self.state, tensors[fields + len(self.trained):]))
        return batch, trained, state

    def _loss_of(self, batch, precision: str = "FP32"):
        """Returns the mean loss, or one loss per example.

        Raises:
            ExportError: the loss function returned something else.
        """
        value = self.cast_losses.get(precision, self.loss)(self.module, batch)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            if value.numel() == 1:
                return value.float().reshape(())
            if value.dim() == 1 and value.shape[0] == next(iter(batch.values())).shape[0]:
                return value.float()
        raise ExportError(f"the loss is {_describe(value)}; accepted: one floating-point number, the mean over the batch, or one for each "
                          "example, a tensor [batch]")

    def run(self, precision: str, scale, *tensors):
        """Returns (loss, losses of the examples if the loss is per example, gradients..., changed state...)."""
        loss, losses, gradients, state, _ = self._step(precision, scale, *tensors)
        changed = (state[name].to(self.state[name].dtype) for name in self.changed)
        return (loss, *([losses] if self.by_example else []), *(gradients[name] for name in self.gradients), *changed)

    def _step(self, precision: str, scale, *tensors):
        batch, trained, state = self._split(tensors)
        trained = {name: tensor.detach().requires_grad_() for name, tensor in trained.items()}
        state = {name: pure_formats.copy_of(tensor, pure_formats.FORMATS.get(precision)) for name, tensor in state.items()}
        named = {**trained, **state}
        # Includes the backward pass, because recomputation reads parameters there.
        with _in_place_of_its_own(self.module, named), torch.enable_grad():
            weights = tensors[len(self.batch)] if self.by_example else None
            loss, losses, gradients = self.differentiate(precision, scale, batch, weights, trained)
        # If forward assigned to a buffer, as in self.mean = 0.9 * self.mean + ..., `named` now has the new tensor.
        assigned = {name for name in state if named[name] is not state[name]}
        for name in assigned:
            if named[name].shape != state[name].shape or named[name].dtype != state[name].dtype:
                raise ExportError(f"forward assigns {_describe(named[name])} to the buffer {name}, which is {_describe(state[name])}; "
                                  "accepted: the same shape and type")
            state[name] = named[name].detach()
        return loss, losses, gradients, state, assigned

    def differentiate(self, precision: str, scale, batch, weights, trained):
        """Returns (loss, losses, gradients by name) for the module with its current tensors."""
        autocast = AUTOCAST.get(precision)
        with torch.autocast(scale.device.type, autocast or torch.bfloat16, enabled=autocast is not None, cache_enabled=False):
            losses = self._loss_of(batch, precision)
            loss = _mean(losses if weights is None else losses * weights)
        if not loss.requires_grad:
            raise ExportError("the loss depends on no parameter; torch.no_grad(), detach() or item() is on the way")
        gradients = torch.autograd.grad(loss * scale, list(trained.values()), allow_unused=True)
        return loss.detach(), losses.detach(), dict(zip(trained, gradients))

    def restore_values(self) -> None:
        """Restores the initial values of the module's parameters and buffers."""
        with torch.no_grad():
            for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
                value = self.trained.get(name, self.state.get(name))
                if value is not None and not same(tensor, value):
                    tensor.copy_(value)

    def refuse_changes_by_mode(self, mode: str) -> None:
        """Raises ExportError unless the submodules have their initial modes, and train() and eval() changed only modes. Call it inside
        ``kept``."""
        if mode == "train" and self.modes[""]:
            other = next((name for name, part in self.module.named_modules() if part.training and not self.modes[name]), None)
            if other is not None:
                raise ExportError(f"{other} is in eval mode, and the module in train mode; call module.train() to train all of it, or give "
                                  f"{other} a method train() that keeps eval mode, as for a frozen batch norm")
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            if not same(tensor, self.trained[name] if name in self.trained else self.state[name]):
                raise ExportError(f"{type(self.module).__name__}.{mode}() changes {name}, as merged weights do; a graph has the same tensors in "
                                  "train and eval mode: let train() change modes alone, and merge in Python what is loaded from a checkpoint")

    def evaluate(self, scale, *tensors):
        batch, trained, state = self._split(tensors)
        for named in (trained, state):
            named.update({name: named[name].clone() for name in self.changed_in_evaluation if name in named})
        if self.differentiates_in_evaluation:
            trained = {name: tensor.detach().requires_grad_() for name, tensor in trained.items()}
        with _in_place_of_its_own(self.module, {**trained, **state}):
            return (self.evaluation_loss(batch) * scale,)

    def evaluation_loss(self, batch):
        """Returns the module's mean loss on a batch with its current mode and tensors."""
        with torch.set_grad_enabled(self.differentiates_in_evaluation):
            return _mean(self._loss_of(batch)).detach()

    @contextlib.contextmanager
    def kept(self, training: bool):
        """Puts the module in train or eval mode. Afterwards restores modes, random state and everything that forward assigned."""
        was_training, random = self.module.training, torch.get_rng_state()
        parts = [part for part in self.module.modules() if not isinstance(part, torch.jit.ScriptModule)]
        held = [(part, dict(part.__dict__), dict(part._parameters), dict(part._buffers)) for part in parts]
        outside = outside_state.Kept(self.module)
        self.module.train(training)
        # oneDNN's LSTM has an argument that is an undefined tensor, which a graph cannot represent.
        recurrent = any(isinstance(each, torch.nn.RNNBase) for each in self.module.modules())
        try:
            with self._without_onednn() if recurrent else contextlib.nullcontext(), recomputation.as_by_backward():
                yield
        finally:
            self.module.train(was_training)
            # After train(), because the modes of submodules may differ from the module's.
            for part, attributes, parameters, buffers in held:
                for current, before in ((part._parameters, parameters), (part._buffers, buffers), (part.__dict__, attributes)):
                    current.clear()
                    current.update(before)
            outside.restore()
            torch.set_rng_state(random)

    @staticmethod
    @contextlib.contextmanager
    def _without_onednn() -> Iterator[None]:
        with warnings.catch_warnings():
            # torch warns about a missing Intel GPU.
            warnings.simplefilter("ignore", UserWarning)
            flags = torch.backends.mkldnn.flags(enabled=False)
            flags.__enter__()
        try:
            yield
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                flags.__exit__(None, None, None)

    def try_eagerly(self) -> None:
        """Runs the module eagerly, so that errors in the module, the batch or the loss have their own message and concrete sizes."""
        with self.kept(training=True):
            self.refuse_changes_by_mode("train")
            try:
                loss, losses, gradients, state, assigned = self._step("FP32", *self._copies())
                self.by_example = losses.dim() == 1
                if not torch.isfinite(loss):
                    raise ExportError(f"the loss is {loss.item()} on the batch; accepted: a finite number; look for NaN in the batch and "
                                      "the weights, and for labels that are all ignored")
                self.gradients = [name for name, gradient in gradients.items() if gradient is not None]
                bad = [name for name in self.gradients if not gradients[name].is_sparse and not torch.isfinite(gradients[name]).all()]
                if bad:
                    raise ExportError(f"the loss is {loss.item():.6g} on the batch, and the gradient of {bad[0]} is not finite; "
                                      "torch.where(x > 0, x.sqrt(), x) has the gradient of both sides: clamp what goes into the root, "
                                      "the quotient or the logarithm")
                # A clone starts at version 0 and every in-place change increments it, except in batch norm.
                self.changed = [name for name, tensor in state.items()
                                if name in assigned or tensor._version > 0 or not torch.equal(tensor, self.state[name])]
            except ExportError:
                raise
            except Exception as error:
                way = f"; its first {len(next(iter(self.batch.values())))} examples were tried; {faults.ONE_SIZE}" if self.is_cut else ""
                raise ExportError(f"{type(self.module).__name__} fails on the batch: {faults.first_line(error)}"
                                  f"{faults.of_types(error, self.batch)}{faults.place(error)}{way}") from error
        self._try_evaluation()

    def _try_evaluation(self) -> None:
        with self.kept(training=False):
            self.refuse_changes_by_mode("eval")
            try:
                self._evaluate_copies()
                return
            except Exception:  # May need gradients.
                self.differentiates_in_evaluation = True
            try:
                self._evaluate_copies()
            except ExportError as error:
                raise ExportError(f"in eval mode {error}; {EVALUATION}") from error
            except Exception as error:
                raise ExportError(f"{type(self.module).__name__} fails on the batch in eval mode, in which the held-out loss is computed: "
                                  f"{faults.first_line(error)}{faults.place(error)}; {EVALUATION}") from error

    def _evaluate_copies(self) -> None:
        copies = self._copies()
        self.evaluate(*copies)
        names = (*self.trained, *self.state)
        # A clone starts at version 0.
        self.changed_in_evaluation = [name for name, tensor in zip(names, copies[len(copies) - len(names):]) if tensor._version > 0]

    def try_in_format(self, precision: str) -> None:
        """Runs the module eagerly with weights in the type of a pure precision, to find out which casts its batch needs. Uses few examples,
        because FP16 is slow on a CPU."""
        batch = {name: tensor[:TRIED_EXAMPLES] for name, tensor in self.batch.items()} if self.dynamic else self.batch
        cause = None
        for loss in pure_formats.losses(self.loss, self.is_loss_of_module, batch, pure_formats.FORMATS[precision]):
            self.cast_losses[precision] = loss
            with self.kept(training=True):
                try:
                    self.step_in_python(precision, batch)
                    return
                except Exception as error:  # Other casts may work.
                    cause = error
        raise ExportError(f"{type(self.module).__name__} does not run with weights in {precision}, as after module.to({pure_formats.FORMATS[precision]}): "
                          f"{faults.first_line(cause)}{faults.place(cause)}; MIXED_{precision} keeps them in FP32") from cause

    def step_in_python(self, precision: str, batch) -> torch.Tensor:
        """Returns the loss of an eager step on copies of the tensors."""
        loss, _, gradients, _, _ = self._step(precision, *self._copies(batch, precision))
        missing = next((name for name in self.gradients if gradients[name] is None), None)
        if missing is not None:
            raise RuntimeError(f"the loss does not depend on {missing}: use it, or leave it out")
        return loss

    def _copies(self, batch=None, precision: str = "FP32") -> Tuple[torch.Tensor, ...]:
        return tuple(tensor.clone() for tensor in self.arguments(batch, precision))

    def training_program(self, precision: str):
        with self.kept(training=True):
            return self._program(lambda *tensors: self.run(precision, *tensors), precision)

    def programs(self, precisions: Optional[Sequence[str]]):
        """Returns all graphs of the file by name.

        Args:
            precisions: the precisions to export, each of which must work. Default: all, without the pure ones that do not work.
        """
        self.try_eagerly()
        comparison = Comparison(self)
        comparison.require_no_memory()
        # FP32 comes first, so that a later error is specific to its precision.
        found = {"FP32": self.training_program("FP32")}
        comparison.require_training(self.runnable("FP32", found["FP32"]))
        found["evaluation"] = self.evaluation_program()
        comparison.require_evaluation(self.runnable("evaluation", found["evaluation"]))
        for name in (each for each in PRECISIONS[1:] if precisions is None or each in precisions):
            try:
                found[name] = self._reduced_program(name, comparison)
            except ExportError as error:
                if precisions is not None or name in AUTOCAST:
                    raise
                self.without[name] = str(error)
        return found

    def _reduced_program(self, precision: str, comparison: Comparison):
        traces = self.traces
        try:
            if precision in pure_formats.FORMATS:
                self.try_in_format(precision)
            program = self.training_program(precision)
            comparison.require_reduced(precision, self.runnable(precision, program))
            return program
        except ExportError:
            self.traces = traces  # The next precision starts with all methods again.
            self.constants.pop(precision, None)
            raise

    def runnable(self, name: str, program) -> runtime.Graph:
        self.refuse_operators(program)
        try:
            return runtime.Graph(program)
        except Exception as error:
            raise ExportError(f"the graph of {type(self.module).__name__} in {name} cannot be loaded as a worker loads it: {faults.first_line(error)}; "
                              "write it with other operators") from error

    def evaluation_program(self):
        with self.kept(training=False):
            return self._program(self.evaluate, "evaluation")

    def _program(self, function, name: str):
        while True:
            try:
                with tracing.quiet(), as_in_eager.patched():
                    return self._export(self.traces[0], function, name)
            except Exception as error:  # The next method is used from here on, also for later programs.
                if len(self.traces) > 1:
                    self.traces = self.traces[1:]
                elif isinstance(error, ExportError):
                    raise
                else:
                    place = faults.place(error) or faults.place_in_forward(functools.partial(self._fail_again, function, name, error))
                    way = f"; it can in FP32: leave {name} out of precisions" if name in PRECISIONS[1:] else ""
                    if faults.is_of_the_size(error):
                        way = f"; {faults.ONE_SIZE}{way}"
                    raise ExportError(f"{type(self.module).__name__} cannot be exported ({name}): {faults.reason(error)}{place}{way}"
                                      ) from error

    def _export(self, trace, function, name: str):
        arguments = self.arguments(precision=name)
        graph = trace(function, arguments, self.fields)
        tracing.leave_out_whole_slices(graph)
        tracing.numbers_become_tensors(graph)
        for_nativert.copy_in_two_steps(graph)
        if name == "evaluation":
            self.held_out_quotients = held_out.give_parts(graph, self.fields)
        self.constants[name] = tracing.lift_constants(graph)
        if name in ("FP32", "evaluation") and self.dynamic:
            self.conditions[name] = tracing.conditions_of_size(graph, self.fields.start)[:MOST_CONDITIONS]
        arguments += tuple(self.constants[name])
        batch = {0: torch.export.Dim("batch")} if self.dynamic else None
        shapes = [batch if position in self.fields else None for position in range(len(arguments))]
        program = torch.export.export(graph, arguments, strict=False, dynamic_shapes=tuple(shapes))
        for_nativert.reshape_views(program.graph)
        for_nativert.divide_where_sizes_become_floats(program.graph)
        program.example_inputs = None  # Otherwise the package would contain them, including all weights.
        return program

    def refuse_operators(self, program) -> None:
        """Raises ExportError for an operator that workers do not support, with the line that needs it."""
        holding = next((node.target for node in program.graph.nodes if any(isinstance(each, complex) for each in (*node.args, *node.kwargs.values()))),
                       None)
        if holding is not None:
            raise ExportError(f"{type(self.module).__name__} gives {holding} a complex number, which no graph holds; make a tensor of it: "
                              "torch.complex(torch.tensor(0.0), torch.tensor(1.0))")
        refused = [node.target for node in program.graph.nodes if node.op == "call_function" and not _runs_in_worker(node.target)]
        if not refused:
            return

        def stop():
            with _Stop(refused):
                self._step("FP32", *self.arguments())

        with self.kept(training=True):
            place = faults.place_in_forward(stop)
        first = refused[0]
        if isinstance(first, torch._ops.OpOverload):
            name, way = str(first), WAYS.get(str(first).split(".")[1].rstrip("_"), "write it with other operators")
        else:
            name, way = getattr(first, "__name__", str(first)), ("a size may be added, subtracted, multiplied, divided and compared; "
                                                                 f"{faults.ONE_SIZE}")
        raise ExportError(f"{type(self.module).__name__} needs the operator {name}{place}, which no worker runs; {way}")

    def _fail_again(self, function, name: str, error: Exception) -> None:
        """Traces again to find the line that fails. If the batch size became a number, fails at the line where it did."""
        numbers = tracing.numbers_of_sizes_fail() if faults.SIZE_BECAME_A_NUMBER.search(str(error)) else contextlib.nullcontext()
        with numbers, tracing.quiet():
            self.traces[0](function, self.arguments(precision=name), self.fields)


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


def _mean(losses: torch.Tensor) -> torch.Tensor:
    """Returns the mean. A single number stays as it is, to avoid an operator."""
    return losses.mean() if losses.dim() else losses


@contextlib.contextmanager
def _in_place_of_its_own(module: torch.nn.Module, tensors: Dict[str, torch.Tensor]) -> Iterator[None]:
    """Runs the module with these parameters and buffers, and afterwards puts what it assigned to their names into ``tensors``.

    torch.func.functional_call does the same for a single call of forward."""
    with torch.nn.utils.stateless._reparametrize_module(module, tensors, tie_weights=True):
        yield


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"


