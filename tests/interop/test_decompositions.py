"""Tests that rewrites of operators in a compiled step compute the same numbers, and apply only where intended."""

import unittest

import torch

import compiled_job  # noqa: F401 - sets the path of the scripts.
import decompositions
import memory_order
import package
import partition

GROUP_NORM = torch.ops.aten.native_group_norm.default
NORM_GRADIENT = torch.ops.aten.native_group_norm_backward.default


def maps(*shape, type=torch.float32, memory_format=torch.channels_last):
    return (3 * torch.randn(shape) + 1).to(type).contiguous(memory_format=memory_format)


def norm_and_gradients(x, weight, bias, groups):
    """Returns the group norm of x, and the gradients of a weighted sum of it, twice: for weights in contiguous order and in the layout of
    the output."""
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias) if t is not None]
    affine = inputs[1:] if weight is not None else [None, None]
    y = torch.nn.functional.group_norm(inputs[0], groups, *affine)
    weights = torch.cos(torch.arange(y.numel(), dtype=torch.float32)).view(y.shape).to(y)
    return [y.detach(), *torch.autograd.grad(y, inputs, weights, retain_graph=True),
            *torch.autograd.grad(y, inputs, torch.empty_like(y).copy_(weights))]


def step_of(module, *batch):
    """Returns the step function of a module, as described in step.py, and example inputs. The loss is the mean square of its output."""
    names, weights = zip(*module.named_parameters(), strict=True)
    buffers = dict(module.named_buffers())

    def step(scale, *tensors):
        trained = [each.detach().requires_grad_() for each in tensors[:len(names)]]
        rest = dict(zip(buffers, tensors[len(names):]))
        with torch.enable_grad():
            loss = torch.func.functional_call(module, {**dict(zip(names, trained)), **rest}, tensors[len(names) + len(rest):]).square().mean()
            gradients = torch.autograd.grad(loss * scale, trained, allow_unused=True)
        return [loss.detach(), *(each.new_empty(0) if made is None else made for made, each in zip(gradients, trained, strict=True))]

    return step, [torch.tensor(4.0), *(each.detach() for each in weights), *buffers.values(), *batch]


def convolved(*tail):
    """Returns the step of a small convolutional network, and example inputs."""
    return step_of(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU6(), torch.nn.Conv2d(8, 8, 3, groups=8),
                                       torch.nn.Conv2d(8, 4, 1), *tail), torch.randn(2, 3, 8, 8))


def run_on_copies(function, inputs):
    """Calls a function with copies of its inputs. Returns its results, then the copies afterwards."""
    copies = [each.clone() for each in inputs]
    torch.manual_seed(6)
    return [*function(*copies), *copies]


def targets(graph):
    return {node.target for node in graph.graph.nodes if node.op == "call_function"}


class DecompositionsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check_norm(self, x, weight, bias, groups, tolerance):
        def function(x, *affine):
            return norm_and_gradients(x, *(affine or (None, None)), groups)

        inputs = [t for t in (x, weight, bias) if t is not None]
        graph = decompositions.trace(function, inputs)
        self.assertFalse({GROUP_NORM, NORM_GRADIENT} & targets(graph))
        wide = [t.double() for t in inputs]
        for ours, exact, torchs in zip(graph(*inputs), function(*wide), function(*inputs), strict=True):
            self.assertEqual(ours.dtype, torchs.dtype)
            self.assertEqual(ours.stride(), torchs.stride())
            # As close to double precision as torch's own kernel, or as the type can represent.
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
            self.assertLessEqual({GROUP_NORM, NORM_GRADIENT}, targets(decompositions.trace(function, [x])))

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
        graph = decompositions.trace(lambda x: [torch.nn.functional.gelu(x)], [torch.randn(5)])
        self.assertIn(torch.ops.aten.gelu.default, targets(graph))


class MemoryOrderTest(unittest.TestCase):
    """Tests the memory order of convolutions and their tensors."""

    def orders(self, step, inputs):
        """Exports a step and checks its results. Returns {True} if the inputs and weights of all convolutions are in channels_last, {False}
        if none are, otherwise both."""
        program, _ = package.export(step, inputs)
        for ours, eager in zip(run_on_copies(program.module(), inputs), run_on_copies(step, inputs), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-6)
            self.assertEqual(ours.is_contiguous(), eager.is_contiguous())
        # The arguments are convolution(input, weight, ...) and convolution_backward(gradient, input, weight, ...).
        forward, backward = memory_order.CONVOLUTIONS
        taken = [node.args[:2] for node in program.graph.find_nodes(op="call_function", target=forward)]
        taken += [node.args[1:3] for node in program.graph.find_nodes(op="call_function", target=backward)]
        return {each.meta["val"].is_contiguous(memory_format=torch.channels_last) for pair in taken for each in pair}

    def test_convolutions_run_in_channels_last_forward_and_backward(self):
        for tail in (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()), (torch.nn.Flatten(), torch.nn.Linear(64, 2)), ():
            with self.subTest(tail):
                self.assertEqual(self.orders(*convolved(*tail)), {True})

    def test_what_depends_on_the_order_of_rows_stays_in_rows(self):
        class Strided(torch.nn.Module):
            def forward(self, maps):
                return maps.as_strided((2, 16), (64, 1))

        class Noisy(torch.nn.Module):
            def forward(self, maps):
                return maps * torch.bernoulli(torch.sigmoid(maps))

        for tail in Strided(), Noisy():
            with self.subTest(tail):
                self.assertIn(False, self.orders(*convolved(tail)))

    def test_dropout_draws_what_it_draws_in_rows(self):
        self.assertEqual(self.orders(*convolved(torch.nn.Dropout(0.5), torch.nn.Dropout2d(0.5))), {True})

    def test_dropout_draws_what_eager_mode_draws_in_any_order_of_memory(self):
        for shape, order in ((4, 12, 16), (1, 0, 2)), ((3, 4, 5, 6), (0, 2, 3, 1)), ((3, 1, 5), (2, 1, 0)), ((7, 5), (0, 1)):
            values = torch.randn(shape).permute(order)
            drawn = []
            for dropout in torch.ops.aten.native_dropout, decompositions.native_dropout:
                torch.manual_seed(5)
                drawn.append(dropout(values, 0.3, True)[1])
            self.assertTrue(torch.equal(*drawn), (shape, order))

    def test_the_factor_of_a_sum_is_a_product(self):
        inputs = [torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)]
        graph = decompositions.trace(lambda a, b, c: [torch.add(c, a @ b, alpha=0.1), c + 1], inputs)
        decompositions.multiply_before_adding(graph.graph)
        graph.recompile()
        self.assertEqual([node.kwargs for node in graph.graph.nodes if node.target is torch.ops.aten.add.Tensor], [{}, {}])
        torch.testing.assert_close(graph(*inputs)[0], inputs[2] + 0.1 * (inputs[0] @ inputs[1]))

    def test_a_graph_without_maps_is_left_alone(self):
        graph = decompositions.trace(lambda a, b: [a @ b], [torch.randn(3, 4), torch.randn(4, 5)])
        before = str(graph.graph)
        memory_order.lay_out_in_channels_last(graph.graph)
        self.assertEqual(str(graph.graph), before)


class PartitionTest(unittest.TestCase):
    """Tests graphs that are split into forward and backward and joined again."""

    def setUp(self):
        torch.manual_seed(7)

    def check(self, step, inputs):
        """Checks that the graph returns the results of the step and changes its inputs alike. Returns the graph."""
        traced = decompositions.trace(step, inputs)
        with torch.no_grad():
            graph = partition.compute_anew(traced, inputs)
            for ours, eager in zip(run_on_copies(graph, inputs), run_on_copies(step, inputs), strict=True):
                torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
        return graph.graph

    def count(self, graph, target):
        return len(graph.find_nodes(op="call_function", target=target))

    def crossing(self, graph):
        return graph.find_nodes(op="call_function", target=torch.ops.prims.inductor_force_stride_order.default)

    def test_backward_computes_cheap_values_anew(self):
        class Cheap(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(6, 64), torch.nn.Linear(64, 3)

            def forward(self, rows):
                return self.second(self.first(rows).sin().cos().exp())

        step, inputs = step_of(Cheap(), torch.randn(5, 6))
        graph = self.check(step, inputs)
        sine = torch.ops.aten.sin.default
        self.assertGreater(self.count(graph, sine), self.count(decompositions.trace(step, inputs).graph, sine))
        wide = [node for node in self.crossing(graph) if node.meta["val"].shape == (5, 64)]
        self.assertLessEqual(len(wide), 2)  # The result of the first linear layer, and the input of the second.

    def test_products_are_made_once(self):
        graph = self.check(*step_of(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)), torch.randn(5, 6)))
        # Two in forward and three in backward, because the gradient of the input is not needed.
        products = sum(self.count(graph, each) for each in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default))
        self.assertEqual(products, 5)

    def test_buffers_are_changed_at_the_end(self):
        graph = self.check(*step_of(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()),
                                    torch.randn(2, 3, 8, 8)))
        *_, first, second, third, output = graph.nodes
        self.assertEqual({node.target for node in (first, second, third)}, {torch.ops.aten.copy_.default})
        self.assertEqual(output.op, "output")

    def test_numbers_are_drawn_once_and_in_their_turn(self):
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.4), torch.nn.Linear(8, 8), torch.nn.Dropout(0.6))
        graph = self.check(*step_of(net, torch.randn(5, 6)))
        self.assertEqual(self.count(graph, torch.ops.aten.bernoulli.p), 2)

    def test_values_written_in_place(self):
        class DropPath(torch.nn.Module):
            """A layer like timm's DropPath."""

            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.randn(6))

            def forward(self, rows):
                kept = rows.new_empty((rows.shape[0], 1)).bernoulli_(0.7)
                kept.div_(0.7)
                return self.scale * rows * kept

        graph = self.check(*step_of(DropPath(), torch.randn(5, 6)))
        self.assertFalse([str(each) for each in targets(torch.fx.GraphModule({}, graph)) if each._schema.is_mutable])

    def test_a_parameter_that_the_loss_does_not_depend_on(self):
        class Unused(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = torch.nn.Parameter(torch.randn(6)), torch.nn.Parameter(torch.randn(4))

            def forward(self, rows):
                return self.used * rows

        self.check(*step_of(Unused(), torch.randn(5, 6)))

    def test_one_gradient_of_two_parameters_and_parts_of_a_tensor(self):
        class Parts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Parameter(torch.randn(8)), torch.nn.Parameter(torch.randn(8))
                self.project = torch.nn.Linear(8, 16)

            def forward(self, rows):
                left, right = self.project(rows + self.first + self.second).chunk(2, dim=-1)
                return left.sigmoid() * right.tanh()

        self.check(*step_of(Parts(), torch.randn(3, 4, 8)))

    def test_a_step_without_gradients(self):
        def step(scale, rows, total):
            total.add_(rows.sum())
            return [rows.square().mean(), rows.new_empty(0)]

        self.assertEqual(self.crossing(self.check(step, [torch.tensor(1.0), torch.randn(3), torch.zeros(())])), [])


if __name__ == "__main__":
    unittest.main()
