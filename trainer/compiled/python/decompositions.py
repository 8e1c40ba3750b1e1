"""Decompositions of operators for which inductor's own code is slow on a CPU.

Group norm of images in channels_last: inductor sums over an image group by group, and its gradient lays images out channel by channel, so
that every convolution around it copies. The decomposition here sums over channels, as LibTorch's kernel does
(aten/src/ATen/native/cpu/group_norm_kernel.cpp), and converts between groups and channels by a product with a 0/1 matrix. Inductor
materializes the inputs and outputs of a matrix product, so the loops over an image load only one number per channel.

Gradient of SiLU: inductor materializes a sigmoid that is used twice. The formula here makes it recompute the sigmoid.

GELU with tanh, and its gradient: inductor calls tanh for each element, which is several times as slow as the equivalent exponential:
x (1 + tanh(u / 2)) / 2 = x / (1 + e^-u).

Dropout: a separate tensor for the mask, so that random_numbers.draw_first can draw masks in order, and a product with it, which inductor
fuses with its surroundings."""

import math

import torch
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten


def in_channels_last(maps):
    return maps.dim() == 4 and maps.is_contiguous(memory_format=torch.channels_last)


def precise(tensor):
    """Converts to at least FP32, in which LibTorch's kernels compute."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def per_channel(values):
    """Adds two dimensions to [images, channels], so that it broadcasts over [images, channels, height, width]."""
    return values[:, :, None, None]


def members(groups, channels, like):
    """Returns a matrix [groups, channels] that is 1 where the channel belongs to the group, otherwise 0."""
    one_each = torch.eye(groups, dtype=like.dtype, device=like.device)
    return one_each.repeat_interleave(channels // groups, 1)


def group_norm(maps, weight, bias, count, channels, pixels, groups, eps):
    if not in_channels_last(maps):
        return NotImplemented
    x = precise(maps)
    group = members(groups, channels, x)
    values = channels // groups * pixels
    mean = x.sum((2, 3)) @ group.t() / values
    variance = (x * x).sum((2, 3)) @ group.t() / values - mean * mean
    rstd = torch.rsqrt(variance.clamp_min(0) + eps)
    scale, shift = rstd @ group, -(mean * rstd) @ group
    if weight is not None:
        scale, shift = scale * weight, shift * weight
    if bias is not None:
        shift = shift + bias
    return (x * per_channel(scale) + per_channel(shift)).to(maps.dtype), mean, rstd


def group_norm_backward(gradient, maps, mean, rstd, weight, count, channels, pixels, groups, wanted):
    if not in_channels_last(maps):
        return NotImplemented
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    x, g, mean, rstd = map(precise, (maps, gradient, mean, rstd))
    group = members(groups, channels, x)
    values = channels // groups * pixels
    products, sums = (g * x).sum((2, 3)), g.sum((2, 3))
    weight_or_one = torch.ones_like(sums) if weight is None else precise(weight)
    group_sums = (sums * weight_or_one) @ group.t()
    of_x = (group_sums * mean - (products * weight_or_one) @ group.t()) * rstd ** 3 / values
    of_one = -of_x * mean - group_sums * rstd / values
    wide_rstd = rstd @ group
    to_maps = to_weight = to_bias = None
    if wanted[0]:
        to_maps = (g * per_channel(wide_rstd * weight_or_one) + x * per_channel(of_x @ group)
                   + per_channel(of_one @ group)).to(maps.dtype)
    if wanted[1]:
        to_weight = ((products - sums * (mean @ group)) * wide_rstd).sum(0).to(weight.dtype)
    if wanted[2]:
        to_bias = sums.sum(0).to(weight.dtype)
    return to_maps, to_weight, to_bias


def sigmoid_of(x):
    return 1 / (1 + torch.exp2(x * -math.log2(math.e)))


def silu_backward(gradient, values):
    x = precise(values)
    sigmoid = sigmoid_of(x)
    return (precise(gradient) * sigmoid * (1 + x * (1 - sigmoid))).to(values.dtype)


GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = GELU_LINEAR * 0.044715


def gelu(values, approximate="none"):
    if approximate != "tanh":
        return NotImplemented
    x = precise(values)
    return (x * sigmoid_of(x * (GELU_LINEAR + GELU_CUBIC * (x * x)))).to(values.dtype)


def gelu_backward(gradient, values, approximate="none"):
    if approximate != "tanh":
        return NotImplemented
    x = precise(values)
    square = x * x
    sigmoid = sigmoid_of(x * (GELU_LINEAR + GELU_CUBIC * square))
    slope = sigmoid * (1 + x * (1 - sigmoid) * (GELU_LINEAR + 3 * GELU_CUBIC * square))
    return (precise(gradient) * slope).to(values.dtype)


def native_dropout(values, probability, train):
    """Computes dropout like native_dropout_cpu (aten/src/ATen/native/Dropout.cpp), with the same random numbers."""
    if train is False:
        return values.clone(), torch.ones_like(values, dtype=torch.bool)
    # Draws in the memory order of the values.
    strides = torch.empty_like(values).stride()
    order = sorted(range(values.dim()), key=lambda dimension: -strides[dimension])
    mask = aten.bernoulli.p(torch.empty([values.shape[each] for each in order], dtype=torch.bool, device=values.device), 1 - probability)
    if order != sorted(order):
        mask = mask.permute([order.index(each) for each in range(values.dim())])
    scale = 0 if probability == 1 else 1 / (1 - probability)
    return (values * mask) * scale, mask


TABLE = {
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_backward,
    aten.silu_backward.default: silu_backward,
    aten.gelu.default: gelu,
    aten.gelu_backward.default: gelu_backward,
    aten.native_dropout.default: native_dropout,
}


def multiply_before_adding(graph):
    """Replaces add(a, b, alpha=0.1) by add(a, 0.1 * b), because inductor of torch 2.11 ignores alpha when it fuses a matrix product b into
    addmm."""
    for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if node.kwargs.get("alpha", 1) == 1:
            continue
        with graph.inserting_before(node):
            product = graph.call_function(aten.mul.Tensor, (node.args[1], node.kwargs["alpha"]))
        product.meta["val"] = node.args[1].meta["val"] * node.kwargs["alpha"]
        node.args, node.kwargs = (node.args[0], product), {}


def trace(step, inputs, table=TABLE):
    """Returns the graph of `step`, a function of tensors, with the operators in `table` decomposed."""
    # Constants of a user's module are real tensors and not among the inputs.
    return make_fx(step, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
