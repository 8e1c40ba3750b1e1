"""The training step of a module as a function of tensors, and its eager runs."""

from __future__ import annotations

import contextlib
import warnings
from typing import Container, Dict, Iterator, List, Mapping, Tuple

import torch

from genesis.errors import ExportError
from genesis.exporting import faults, outside_state, pure_formats, recomputation
from genesis.exporting.inputs import FIELD_TYPES, with_distinct_size
from genesis.exporting.losses import describe
from genesis.exporting.outside_state import same

# Element types of weights and constants, with their names in an exported file.
TYPES = {**FIELD_TYPES, torch.float16: "float16", torch.bfloat16: "bfloat16"}
# Autocast type of each precision with FP32 weights.
AUTOCAST = {"FP32": None, "MIXED_BF16": torch.bfloat16, "MIXED_FP16": torch.float16}
PRECISIONS = (*AUTOCAST, *pure_formats.FORMATS)
# Number of examples with which a worker tries each graph before a job.
TRIED_EXAMPLES = 2
EVALUATION = "where forward gives something else in eval mode, a function as loss= can ask module.training"


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
        # Whether the graphs support any batch size or only that of `batch`.
        self.dynamic = dynamic
        tried = with_distinct_size(module, batch) if dynamic else batch
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
            if tensor.dtype not in TYPES:
                raise ExportError(f"the tensor {name} is of {tensor.dtype}; accepted: {', '.join(map(str, TYPES))}; a complex one as "
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
        # Conditions on the batch size that held in the trace of each graph, by its name, each with a size for which it does not hold.
        self.conditions: Dict[str, List[Tuple[str, int]]] = {}
        # Tensors that forward changes in place in eval mode. The graph of the held-out loss changes copies.
        self.changed_in_evaluation: List[str] = []
        # Number of quotients in the held-out loss (see held_out.give_parts).
        self.held_out_quotients = 0
        # Why the held-out loss does not add up over batches, with an operator; "" if none was found.
        self.held_out_unfound = ""
        # Whether forward or the loss needs gradients in eval mode too, for example for torch.autograd.grad.
        self.differentiates_in_evaluation = False

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
        raise ExportError(f"the loss is {describe(value)}; accepted: one floating-point number, the mean over the batch, or one for each "
                          "example, a tensor [batch]")

    def run(self, precision: str, scale, *tensors):
        """Returns (loss, losses of the examples if the loss is per example, gradients..., changed state...)."""
        loss, losses, gradients, state, _ = self.compute(precision, scale, *tensors)
        changed = (state[name].to(self.state[name].dtype) for name in self.changed)
        return (loss, *([losses] if self.by_example else []), *(gradients[name] for name in self.gradients), *changed)

    def compute(self, precision: str, scale, *tensors):
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
                raise ExportError(f"forward assigns {describe(named[name])} to the buffer {name}, which is {describe(state[name])}; "
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
        """Raises ExportError if ``mode``, train or eval, changed a parameter or a buffer, or if train() of a module in train mode took a
        submodule out of eval mode. Call it inside ``kept``."""
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
        with self.in_eval_mode({**trained, **state}, self.changed_in_evaluation):
            return (self.evaluation_loss(batch) * scale,)

    @contextlib.contextmanager
    def in_eval_mode(self, named: Dict[str, torch.Tensor], changed: Container[str] = ()) -> Iterator[None]:
        """Runs the module with these parameters and buffers, of which those in ``changed`` are copied. Call it inside ``kept``."""
        named = {name: tensor.clone() if name in changed else tensor for name, tensor in named.items()}
        if self.differentiates_in_evaluation:
            named.update({name: named[name].detach().requires_grad_() for name in self.trained})
        with _in_place_of_its_own(self.module, named):
            yield

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
                loss, losses, gradients, state, assigned = self.compute("FP32", *self._copies())
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
        loss, _, gradients, _, _ = self.compute(precision, *self._copies(batch, precision))
        missing = next((name for name in self.gradients if gradients[name] is None), None)
        if missing is not None:
            raise RuntimeError(f"the loss does not depend on {missing}: use it, or leave it out")
        return loss

    def _copies(self, batch=None, precision: str = "FP32") -> Tuple[torch.Tensor, ...]:
        return tuple(tensor.clone() for tensor in self.arguments(batch, precision))


def _mean(losses: torch.Tensor) -> torch.Tensor:
    """Returns the mean. A single number is returned unchanged, to avoid an operator."""
    return losses.mean() if losses.dim() else losses


@contextlib.contextmanager
def _in_place_of_its_own(module: torch.nn.Module, tensors: Dict[str, torch.Tensor]) -> Iterator[None]:
    """Runs the module with these parameters and buffers, and afterwards puts what it assigned to their names into ``tensors``.

    torch.func.functional_call does the same for a single call of forward."""
    with torch.nn.utils.stateless._reparametrize_module(module, tensors, tie_weights=True):
        yield
