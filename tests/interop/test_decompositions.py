"""What a compiled step puts in the place of operators: the same numbers, and only where it is meant to."""

import unittest

import torch

import compiled_job  # noqa: F401: it says where the scripts are.
import decompositions
import memory_order
import package

GROUP_NORM = torch.ops.aten.native_group_norm.default
NORM_GRADIENT = torch.ops.aten.native_group_norm_backward.default


def maps(*shape, type=torch.float32, memory_format=torch.channels_last):
    return (3 * torch.randn(shape) + 1).to(type).contiguous(memory_format=memory_format)


def norm_and_gradients(x, weight, bias, groups):
    """The norm of x, and the gradients of a weighted sum of it, from weights in rows and in its own layout."""
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias) if t is not None]
    affine = inputs[1:] if weight is not None else [None, None]
    y = torch.nn.functional.group_norm(inputs[0], groups, *affine)
    weights = torch.cos(torch.arange(y.numel(), dtype=torch.float32)).view(y.shape).to(y)
    return [y.detach(), *torch.autograd.grad(y, inputs, weights, retain_graph=True),
            *torch.autograd.grad(y, inputs, torch.empty_like(y).copy_(weights))]


def convolved(*tail):
    """Parameters of a small net of convolutions, and what makes its loss and gradients of them and of maps."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU6(), torch.nn.Conv2d(8, 8, 3, groups=8),
                              torch.nn.Conv2d(8, 4, 1), *tail)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def step(maps, *weights):
        inputs = [each.detach().requires_grad_() for each in weights]
        loss = torch.func.functional_call(net, dict(zip(names, inputs, strict=True)), maps).square().mean()
        return [loss.detach(), *torch.autograd.grad(loss, inputs)]

    return [each.detach() for each in parameters], step


def targets(graph):
    return {node.target for node in graph.graph.nodes if node.op == "call_function"}


class DecompositionsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check_norm(self, x, weight, bias, groups, tolerance):
        def function(x, *affine):
            return norm_and_gradients(x, *(affine or (None, None)), groups)

        inputs = [t for t in (x, weight, bias) if t is not None]
        graph = package.trace(function, inputs)
        self.assertFalse({GROUP_NORM, NORM_GRADIENT} & targets(graph))
        wide = [t.double() for t in inputs]
        for ours, exact, torchs in zip(graph(*inputs), function(*wide), function(*inputs), strict=True):
            self.assertEqual(ours.dtype, torchs.dtype)
            self.assertEqual(ours.stride(), torchs.stride())
            # As near to double precision as torch's own kernel, or as the rounding of the format.
            error, theirs = ((got.double() - exact).norm() / exact.norm() for got in (ours, torchs))
            self.assertLess(error, max(1.5 * theirs, tolerance))

    def test_group_norm_and_its_gradient(self):
        self.check_norm(maps(2, 24, 6, 5), torch.randn(24), torch.randn(24), 8, 1e-6)

    def test_group_norm_without_weights(self):
        self.check_norm(maps(2, 12, 4, 4), None, None, 3, 1e-6)

    def test_group_norm_in_bf16(self):
        x = maps(2, 16, 8, 8, type=torch.bfloat16)
        self.check_norm(x, torch.randn(16), torch.randn(16), 8, 1e-3)
        self.check_norm(x, torch.randn(16).bfloat16(), torch.randn(16).bfloat16(), 8, 1e-3)

    def test_group_norm_in_double_precision_stays_in_it(self):
        x = maps(2, 8, 4, 4, type=torch.float64)
        self.check_norm(x, torch.randn(8).double(), torch.randn(8).double(), 4, 1e-14)

    def test_leaves_other_layouts_to_inductor(self):
        def function(x):
            return norm_and_gradients(x, None, None, 4)

        for x in (maps(2, 8, 4, 4, memory_format=torch.contiguous_format), torch.randn(2, 8, 6),
                  torch.randn(2, 8)):
            self.assertLessEqual({GROUP_NORM, NORM_GRADIENT}, targets(package.trace(function, [x])))

    def test_gradient_of_silu(self):
        for type, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float64, 1e-14)):
            x = torch.linspace(-200, 200, 4001).to(type)
            got = decompositions.silu_backward(torch.ones_like(x), x)
            self.assertEqual(got.dtype, type)
            torch.testing.assert_close(got, torch.ops.aten.silu_backward(torch.ones_like(x), x),
                                       rtol=tolerance, atol=tolerance)

    def test_gelu_by_tanh_and_its_gradient(self):
        for type, tolerance in ((torch.float32, 3e-6), (torch.bfloat16, 1e-2), (torch.float64, 1e-14)):
            x = torch.linspace(-200, 200, 4001).to(type)
            value = decompositions.gelu(x, approximate="tanh")
            gradient = decompositions.gelu_backward(torch.ones_like(x), x, approximate="tanh")
            for got, torchs in ((value, torch.ops.aten.gelu(x, approximate="tanh")),
                                (gradient, torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate="tanh"))):
                self.assertEqual(got.dtype, type)
                torch.testing.assert_close(got, torchs, rtol=tolerance, atol=tolerance)

    def test_gelu_by_the_error_function_is_left_to_inductor(self):
        graph = package.trace(lambda x: [torch.nn.functional.gelu(x)], [torch.randn(5)])
        self.assertIn(torch.ops.aten.gelu.default, targets(graph))


class MemoryOrderTest(unittest.TestCase):
    """Maps of convolutions."""

    def orders(self, step, inputs):
        """Whether the maps and weights of convolutions, forward and backward, are in channels_last."""
        program, _ = package.export(step, inputs)
        torch.manual_seed(6)
        found = program.module()(*inputs)
        torch.manual_seed(6)
        for ours, eager in zip(found, step(*inputs), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-6)
            self.assertEqual(ours.is_contiguous(), eager.is_contiguous())
        # convolution(maps, weight, ...) and convolution_backward(gradient, maps, weight, ...).
        forward, backward = memory_order.CONVOLUTIONS
        taken = [node.args[:2] for node in program.graph.find_nodes(op="call_function", target=forward)]
        taken += [node.args[1:3] for node in program.graph.find_nodes(op="call_function", target=backward)]
        return {each.meta["val"].is_contiguous(memory_format=torch.channels_last) for pair in taken for each in pair}

    def test_convolutions_run_in_channels_last_forward_and_backward(self):
        for tail in (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()), (torch.nn.Flatten(), torch.nn.Linear(64, 2)), ():
            with self.subTest(tail):
                parameters, step = convolved(*tail)
                self.assertEqual(self.orders(step, [torch.randn(2, 3, 8, 8), *parameters]), {True})

    def test_what_depends_on_the_order_of_rows_stays_in_rows(self):
        class Strided(torch.nn.Module):
            def forward(self, maps):
                return maps.as_strided((2, 16), (64, 1))

        class Noisy(torch.nn.Module):
            def forward(self, maps):
                return maps * torch.bernoulli(torch.sigmoid(maps))

        for tail in Strided(), Noisy():
            with self.subTest(tail):
                parameters, step = convolved(tail)
                self.assertIn(False, self.orders(step, [torch.randn(2, 3, 8, 8), *parameters]))

    def test_dropout_draws_what_it_draws_in_rows(self):
        parameters, step = convolved(torch.nn.Dropout(0.5), torch.nn.Dropout2d(0.5))
        self.assertEqual(self.orders(step, [torch.randn(2, 3, 8, 8), *parameters]), {True})

    def test_a_graph_without_maps_is_left_alone(self):
        graph = package.trace(lambda a, b: [a @ b], [torch.randn(3, 4), torch.randn(4, 5)])
        before = str(graph.graph)
        memory_order.lay_out_in_channels_last(graph.graph)
        self.assertEqual(str(graph.graph), before)


if __name__ == "__main__":
    unittest.main()
