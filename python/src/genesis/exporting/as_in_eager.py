"""Patches, for the duration of a trace, operators that torch 2.11 traces differently from eager mode."""

from __future__ import annotations

import contextlib
from typing import Iterator
from unittest import mock

import torch
import torch._decomp.decompositions as decompositions
import torch._meta_registrations as meta_registrations
from torch._subclasses.fake_tensor import FakeTensor

from genesis.exporting import recomputation


@contextlib.contextmanager
def patched() -> Iterator[None]:
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with contextlib.ExitStack() as patches:
        patches.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        # nn.TransformerEncoder creates nested tensors in eval mode, which no graph supports.
        torch.backends.mha.set_fastpath_enabled(False)
        patches.enter_context(mock.patch.object(decompositions, "_rnn_helper", _with_dropout(decompositions._rnn_helper)))
        patches.enter_context(mock.patch.object(decompositions, "one_layer_lstm", _with_states(decompositions.one_layer_lstm)))
        patches.enter_context(mock.patch.object(meta_registrations, "_meta_grouped_mm_common", _shapes_of_grouped_products))
        patches.enter_context(mock.patch.object(torch._C._nn, "cross_entropy_loss", _for_any_batch(torch._C._nn.cross_entropy_loss)))
        patches.enter_context(mock.patch.object(torch._C, "_select_conv_backend", _without_condition(torch._C._select_conv_backend)))
        patches.enter_context(recomputation.repeating_what_is_drawn())
        yield


def _for_any_batch(cross_entropy_loss):
    """Replaces the cross-entropy of class probabilities by one that can be traced for any batch size.

    torch's own divides by a number that it computes from the batch size, which a trace records as a constant."""
    def loss(input, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
        if not target.is_floating_point():
            return cross_entropy_loss(input, target, weight, reduction, ignore_index, label_smoothing)
        classes = 0 if input.dim() == 1 else 1
        if label_smoothing > 0:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[classes]
        losses = -(target * input.log_softmax(classes))
        if weight is not None:
            losses = losses * weight.reshape(-1, *[1] * (input.dim() - 1 - classes))
        losses = losses.sum(classes)
        return (losses, losses.mean(), losses.sum())[reduction]
    return loss


def _with_dropout(helper):
    """Adds the dropout between layers that torch's decomposition of LSTM, GRU and RNN omits, because it tests ``num_layers < i - 1``."""
    def layers(input, hidden, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, layer_fn):
        directions, calls = 1 + bidirectional, 0

        def layer(given, *arguments, **options):
            nonlocal calls, dropped
            if calls % directions == 0:
                dropped = _dropped(given, dropout) if calls and train and dropout else given
            calls += 1
            return layer_fn(dropped, *arguments, **options)

        dropped = input
        return helper(input, hidden, params, has_biases, num_layers, 0.0, train, bidirectional, batch_first, layer)
    return layers


def _with_states(one_layer):
    """Gives the last states of an LSTM the shape that they have in eager mode.

    torch's decomposition returns them with an extra dimension, because it squeezes the batch dimension instead of the layer's."""
    def layer(given, hidden, *arguments, **options):
        output, states = one_layer(given, hidden, *arguments, **options)
        return output, tuple(state.reshape(before.shape) for state, before in zip(states, hidden))
    return layer


def _shapes_of_grouped_products(mat_a, mat_b, *_scales, offs=None, out_dtype=None, **_options):
    """Returns the output of a grouped matrix product on a CPU, where all floating-point types are supported.

    torch's version checks what a GPU kernel requires: BF16 and aligned rows."""
    return meta_registrations._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype)


def _without_condition(select):
    """Makes the choice of a convolution's kernel no condition on the batch size. The kernel decides about the memory layout of the result
    alone, and a graph works with any (for_nativert.reshape_views)."""
    def backend(*arguments, **options):
        given = arguments[0] if arguments else options["input"]
        shape_env = given.fake_mode.shape_env if isinstance(given, FakeTensor) else None
        with shape_env.suppress_guards() if shape_env is not None else contextlib.nullcontext():
            return select(*arguments, **options)
    return backend


def _dropped(values: torch.Tensor, probability: float) -> torch.Tensor:
    """Applies dropout like ATen on a CPU. The decomposition would draw other random numbers."""
    return values * torch.empty_like(values).bernoulli_(1 - probability).div_(1 - probability)
