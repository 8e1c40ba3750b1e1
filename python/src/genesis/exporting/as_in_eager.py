"""Patches, for the duration of a trace, operators that torch 2.11 traces differently from eager mode."""

from __future__ import annotations

import contextlib
from typing import Iterator
from unittest import mock

import torch
import torch._decomp.decompositions as decompositions
import torch._meta_registrations as meta_registrations
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from genesis.exporting import recomputation


@contextlib.contextmanager
def patched() -> Iterator[None]:
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with contextlib.ExitStack() as patches:
        patches.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        # nn.TransformerEncoder creates nested tensors in eval mode, which no graph supports.
        torch.backends.mha.set_fastpath_enabled(False)
        patches.enter_context(mock.patch.object(decompositions, "_rnn_helper", _with_dropout(decompositions._rnn_helper)))
        for name, function in (("one_layer_rnn", _recurrent_layer), ("gru_cell", _gru_cell), ("one_layer_lstm", _lstm_layer)):
            patches.enter_context(mock.patch.object(decompositions, name, function))
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


def _recurrent_layer(given, hidden, params, has_biases, hidden_fn, reverse=False):
    """Returns the outputs and the last state of one direction of a layer of a GRU or RNN, for a sequence [steps, batch, features].

    The states are [batch, hidden], as in eager mode. torch's decomposition has states [1, batch, hidden], whose products need views and
    whose sums broadcast, which takes twice as many operators."""
    weight, hidden_weight, bias, hidden_bias = _weights_of(params, has_biases)
    outputs = []
    for each in _steps(given, weight, bias, reverse):
        hidden = hidden_fn(each, hidden, weight, bias, hidden_weight, hidden_bias)
        outputs.append(hidden)
    return _stacked(outputs, reverse), hidden


def _lstm_layer(given, hidden, params, has_biases, reverse=False):
    """Returns the outputs and the last states of one direction of a layer of an LSTM. See _recurrent_layer."""
    weight, hidden_weight, bias, hidden_bias = _weights_of(params, has_biases)
    projection = params[-1] if len(params) in (3, 5) else None
    (state, cell), outputs = hidden, []
    for each in _steps(given, weight, bias, reverse):
        state, cell = decompositions.lstm_cell(each, state, cell, hidden_weight, hidden_bias, projection, chunk_dim=1)
        outputs.append(state)
    return _stacked(outputs, reverse), (state, cell)


def _gru_cell(given, hidden, _weight, _bias, hidden_weight, hidden_bias):
    of_input, of_hidden = given.chunk(3, 1), functional.linear(hidden, hidden_weight, hidden_bias).chunk(3, 1)
    reset, update = ((mine + theirs).sigmoid() for mine, theirs in zip(of_hidden[:2], of_input[:2]))
    new = (of_input[2] + of_hidden[2] * reset).tanh()
    return (hidden - new) * update + new


def _weights_of(params, has_biases):
    return (*params[:2], *(params[2:4] if has_biases else (None, None)))


def _steps(given, weight, bias, reverse):
    """Returns, for each step, the part of a layer's result that depends only on the input."""
    of_input = functional.linear(given, weight, bias)
    return (of_input.flip(0) if reverse else of_input).unbind(0)


def _stacked(outputs, reverse):
    return torch.stack(outputs[::-1] if reverse else outputs)


def _shapes_of_grouped_products(mat_a, mat_b, *_scales, offs=None, out_dtype=None, **_options):
    """Returns the output of a grouped matrix product on a CPU, where all floating-point types are supported.

    torch's version checks what a GPU kernel requires: BF16 and aligned rows."""
    return meta_registrations._create_grouped_mm_output_tensor(mat_a, mat_b, offs, out_dtype)


def _without_condition(select):
    """Keeps the choice of a convolution's kernel from adding a condition on the batch size. The kernel only determines the memory layout
    of the result, and a graph works with any layout (for_nativert.reshape_views)."""
    def backend(*arguments, **options):
        given = arguments[0] if arguments else options["input"]
        shape_env = given.fake_mode.shape_env if isinstance(given, FakeTensor) else None
        with shape_env.suppress_guards() if shape_env is not None else contextlib.nullcontext():
            return select(*arguments, **options)
    return backend


def _dropped(values: torch.Tensor, probability: float) -> torch.Tensor:
    """Applies dropout like ATen on a CPU. The decomposition would draw other random numbers."""
    return values * torch.empty_like(values).bernoulli_(1 - probability).div_(1 - probability)
