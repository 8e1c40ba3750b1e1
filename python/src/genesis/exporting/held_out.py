"""Splits the held-out loss into parts that can be combined over batches.

A loss that divides by the number of labels that count (cross-entropy with ``ignore_index`` or ``weight``, or a mask) is not a mean over
examples: the mean of the losses of two batches is not the loss of both together. This module finds such quotients in the graph of the
held-out loss, and makes each an output of its own, followed by its divisor.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import torch
from torch.fx import GraphModule, Node

ATEN = torch.ops.aten
MEAN_OF_LOSS, SUM_OF_LOSS = 1, 2  # Values of the argument reduction=.
NLL = {ATEN.nll_loss_forward.default, ATEN.nll_loss2d_forward.default}
SUMS = {ATEN.sum.default, ATEN.sum.dim_IntList}
COUNTS = {ATEN.count_nonzero.default, ATEN.dot.default}
# Position of the argument reduction=.
REDUCTIONS = {ATEN.mse_loss.default: 2, ATEN.smooth_l1_loss.default: 2, ATEN.huber_loss.default: 2, ATEN.binary_cross_entropy.default: 3,
              ATEN.binary_cross_entropy_with_logits.default: 4}
MEANS = {ATEN.mean.default, ATEN.mean.dim}
# Linear operators: f(a + b) = f(a) + f(b).
SAME = {ATEN.view.default, ATEN.reshape.default, ATEN.detach.default, ATEN.clone.default, ATEN.alias.default, ATEN._to_copy.default,
        ATEN.to.dtype, ATEN.neg.default, ATEN.squeeze.default, ATEN.squeeze.dim, ATEN.squeeze.dims, ATEN.unsqueeze.default,
        ATEN.contiguous.default, ATEN._unsafe_view.default}
PRODUCTS = {ATEN.mul.Tensor, ATEN.mul.Scalar}
QUOTIENTS = {ATEN.div.Tensor, ATEN.div.Scalar}
DIFFERENCES = {ATEN.sub.Tensor, ATEN.sub.Scalar}
TAKEN_FROM = {ATEN.rsub.Scalar, ATEN.rsub.Tensor}  # rsub(a, b) is b - a.
SUMMANDS = {ATEN.add.Tensor, ATEN.add.Scalar, *DIFFERENCES, *TAKEN_FROM}
COMPARISONS = {ATEN.gt.Scalar, ATEN.ge.Scalar, ATEN.ne.Scalar, ATEN.lt.Scalar, ATEN.le.Scalar, ATEN.eq.Scalar,
               ATEN.gt.Tensor, ATEN.ge.Tensor, ATEN.ne.Tensor, ATEN.lt.Tensor, ATEN.le.Tensor, ATEN.eq.Tensor}
SIZES = {ATEN.sym_size.int}
CONSTANTS = {ATEN.zeros_like.default, ATEN.ones_like.default, ATEN.full_like.default}
STACKS = {ATEN.stack.default, ATEN.cat.default}
# Linear operators on values of a whole batch, beside products, quotients and choices.
LINEAR = {*SAME, *SUMMANDS, *SUMS, *MEANS, *STACKS, ATEN.select.int, ATEN.slice.Tensor, ATEN.expand.default, ATEN.permute.default,
          ATEN.t.default, ATEN.unbind.int, operator.getitem}
# Operators that keep a divisor positive.
BOUNDS = {ATEN.clamp.default, ATEN.clamp_min.default, ATEN.maximum.default, ATEN.clamp.Tensor, ATEN.add.Tensor, ATEN.add.Scalar}


class Quotient(NamedTuple):
    """A term of the loss that is a quotient, with its divisor."""

    value: Node
    divisor: Node


class Parts(NamedTuple):
    """A loss as the sum of a mean over the examples and of quotients."""

    mean: Optional[Node]
    quotients: List[Quotient]


class Finder:
    """A finder of the ``Parts`` of a graph's loss."""

    def __init__(self, graph: GraphModule, fields: range) -> None:
        self.graph = graph.graph
        self.fields = fields
        self.of_batch = self._of_batch(sizes=True)
        self.of_values = self._of_batch(sizes=False)
        # The quotients that were found, with the inputs of their numerators.
        self.found: Dict[Node, List[Node]] = {}

    def _of_batch(self, sizes: bool) -> Set[Node]:
        """Returns the nodes whose values depend on the batch; without ``sizes``, not those that depend only on its size."""
        found: Set[Node] = set()
        for position, node in enumerate(self.graph.nodes):
            if (node.op == "placeholder" and position in self.fields) or any(each in found for each in node.all_input_nodes):
                if node.target not in CONSTANTS and (sizes or node.target not in SIZES):
                    found.add(node)
        return found

    def unfound(self, loss: Node) -> Optional[Node]:
        """Returns an operator on a value of the whole batch that is not linear, so that the loss does not add up over batches; None without
        one. Quotients that were found add up."""
        symbol = next(iter(_symbols(next(node for position, node in enumerate(self.graph.nodes) if position in self.fields))), None)
        if symbol is None:  # The graph supports one batch size.
            return None

        def is_of_whole_batch(node: Node) -> bool:
            return node in self.of_values and isinstance(node.meta.get("val"), torch.Tensor) and symbol not in _symbols(node)

        todo, seen = [loss], {loss}
        while todo:
            node = todo.pop()
            inputs = self.found.get(node)
            if inputs is None:
                inputs = node.all_input_nodes
                if node.target in NLL and node.args[3] == MEAN_OF_LOSS:
                    return node
                if any(map(is_of_whole_batch, inputs)) and not (is_of_whole_batch(node) and self._is_linear(node)):
                    return node
            todo += [each for each in inputs if each in self.of_values and each not in seen]
            seen.update(inputs)
        return None

    def _is_linear(self, node: Node) -> bool:
        varying = [isinstance(each, Node) and each in self.of_values for each in node.args[:2]]
        if node.target in PRODUCTS:
            return not all(varying)
        if node.target in QUOTIENTS:
            return not varying[1]
        if node.target is ATEN.where.self:
            return not varying[0]
        return node.target in LINEAR

    def _varies(self, value: Any) -> bool:
        return isinstance(value, Node) and value in self.of_batch

    def _call(self, like: Node, *arguments: Any) -> Node:
        return self.graph.call_function(like.target, (*arguments, *like.args[len(arguments):]), like.kwargs)

    def _each(self, parts: Parts, change: Callable[[Node], Node]) -> Parts:
        return Parts(None if parts.mean is None else change(parts.mean),
                     [Quotient(change(each.value), each.divisor) for each in parts.quotients])

    def split(self, node: Any) -> Parts:
        found = self._quotient(node)
        if found is not None:
            return Parts(None, [found])
        if isinstance(node, Node) and self._varies(node):
            if node.target in SAME:
                return self._each(self.split(node.args[0]), lambda value: self._call(node, value))
            if node.target in SUMMANDS and not node.kwargs:
                first, second = (self.split(self._tensor(each, node)) for each in node.args[:2])
                return self._sum(self._negative(first) if node.target in TAKEN_FROM else first,
                                 self._negative(second) if node.target in DIFFERENCES else second)
            if node.target in (*PRODUCTS, *QUOTIENTS) and not self._varies(node.args[1]):
                return self._each(self.split(node.args[0]), lambda value: self._call(node, value))
            if node.target in PRODUCTS and not self._varies(node.args[0]):
                return self._each(self.split(node.args[1]), lambda value: self._call(node, node.args[0], value))
            if node.target is ATEN.where.self and not self._varies(node.args[0]):
                return self._switched(node)
            if node.target in (*SUMS, *MEANS) and len(node.args) == 1 and isinstance(node.args[0], Node) and node.args[0].target is ATEN.stack.default:
                return self._of_stack(node)
        return Parts(node, [])

    def _switched(self, node: Node) -> Parts:
        """Splits a choice that does not depend on the batch, such as ``torch.where(self.step < 100, loss, 0)``."""
        condition, first, second = node.args
        zero = self.graph.call_function(ATEN.zeros_like.default, (node,))
        first, second = self._tensor(first, node), self._tensor(second, node)
        return self._sum(self._each(self.split(first), lambda value: self._call(node, condition, value, zero)),
                         self._each(self.split(second), lambda value: self._call(node, condition, zero, value)))

    def _of_stack(self, node: Node) -> Parts:
        """Splits the sum or the mean of losses that were stacked."""
        losses = node.args[0].args[0]
        if any(not isinstance(each.meta.get("val"), torch.Tensor) or each.meta["val"].dim() for each in losses):
            return Parts(node, [])
        total = self.split(losses[0])
        for each in losses[1:]:
            total = self._sum(total, self.split(each))
        count = len(losses) if node.target in MEANS else 1
        return self._each(total, lambda value: self.graph.call_function(ATEN.div.Tensor, (value, count)))

    def _tensor(self, value: Any, like: Node) -> Node:
        if isinstance(value, Node):
            return value
        return self.graph.call_function(ATEN.add.Tensor, (self.graph.call_function(ATEN.zeros_like.default, (like,)), value))

    def _negative(self, parts: Parts) -> Parts:
        return self._each(parts, lambda value: self.graph.call_function(ATEN.neg.default, (value,)))

    def _sum(self, first: Parts, second: Parts) -> Parts:
        means = [each.mean for each in (first, second) if each.mean is not None]
        mean = self.graph.call_function(ATEN.add.Tensor, tuple(means)) if len(means) == 2 else means[0] if means else None
        return Parts(mean, first.quotients + second.quotients)

    def _quotient(self, node: Any) -> Optional[Quotient]:
        if not isinstance(node, Node):
            return None
        if node.target is operator.getitem and node.args[0].target in NLL and node.args[1] == 0 and node.args[0].args[3] == MEAN_OF_LOSS:
            self.found[node] = node.args[0].all_input_nodes
            return Quotient(node, self.graph.call_function(operator.getitem, (node.args[0], 1)))
        if node.target is ATEN.nan_to_num.default or self._replaces_nan(node):
            # The other value is that of batches whose divisor is 0.
            inside = node.args[0] if node.target is ATEN.nan_to_num.default else node.args[2]
            found = self._quotient(inside)
            if found is None:
                return None
            self.found[node] = [inside]
            return Quotient(node, found.divisor)
        if node.target is ATEN.where.self and self._varies(node.args[0]) and not self._varies(node.args[2]):
            # The other value is that of batches in which nothing counts. Their divisor is 0, so they contribute nothing.
            before = dict(self.found)
            found = self._quotient(node.args[1])
            if found is not None and self._asks_for(node.args[0], found.divisor):
                self.found[node] = [node.args[1]]
                return found
            self.found = before
            return None
        terms = self._terms(node)
        if terms is None or not self._varies(terms[1]) or "val" not in node.meta or node.meta["val"].dim():
            return None
        numerator, divisor = self._plain(terms[0]), self._plain(terms[1], bounded=True)
        if self._is_sum(numerator) and self._is_sum(divisor):
            self.found[node] = [numerator]
            return Quotient(self._without_bound(node, terms[1]), divisor)
        if all(isinstance(each, Node) and each.target in MEANS for each in (numerator, divisor)):
            self.found[node] = [numerator]
            return Quotient(self._without_bound(node, terms[1]), self.graph.call_function(ATEN.sum.default, (divisor.args[0],)))
        return None

    def _replaces_nan(self, node: Node) -> bool:
        """Returns whether the node is ``torch.where(torch.isnan(x), constant, x)``."""
        return (node.target is ATEN.where.self and not self._varies(node.args[1]) and isinstance(node.args[0], Node)
                and node.args[0].target is ATEN.isnan.default and node.args[0].args[0] is node.args[2])

    def _asks_for(self, condition: Any, divisor: Node) -> bool:
        """Returns whether a condition compares the divisor with a constant, as in ``mask.sum() > 0``, or asks for ``mask.any()``."""
        condition = self._plain(condition)
        if not isinstance(condition, Node):
            return False
        if condition.target in COMPARISONS and not self._varies(condition.args[1]):
            condition = self._plain(condition.args[0])
        elif condition.target is not ATEN.any.default:
            return False
        return isinstance(condition, Node) and bool(condition.args) and self._alike(self._counted(condition), self._counted(divisor))

    def _counted(self, node: Node) -> Any:
        """Returns what a reduction adds up, below casts."""
        return node if node.target is operator.getitem else self._plain(node.args[0])

    def _alike(self, first: Any, second: Any) -> bool:
        """Returns whether two values of the graph are computed alike."""
        if not isinstance(first, Node) or not isinstance(second, Node):
            return type(first) is type(second) and first == second
        return first is second or (first.op == second.op == "call_function" and first.target is second.target and first.kwargs == second.kwargs
                                   and len(first.args) == len(second.args) and all(map(self._alike, first.args, second.args)))

    def _without_bound(self, quotient: Node, divisor: Node) -> Node:
        """Returns the quotient without the lower bound of its divisor. The bound is meant for the sum over all batches, not for that of
        one."""
        unbounded = self._unbounded(divisor)
        if unbounded is divisor:
            return quotient
        correction = self.graph.call_function(ATEN.div.Tensor, (divisor, unbounded))
        return self.graph.call_function(ATEN.mul.Tensor, (quotient, correction))

    def _unbounded(self, node: Node) -> Node:
        if node.target in BOUNDS and not self._varies(node.args[1]):
            return self._unbounded(node.args[0])
        if node.target not in SAME:
            return node
        inside = self._unbounded(node.args[0])
        return node if inside is node.args[0] else self._call(node, inside)

    def _terms(self, node: Node) -> Optional[Tuple[Any, Any]]:
        """Returns (numerator, divisor) of a quotient or of a product with a reciprocal; None for other nodes."""
        if node.target is ATEN.div.Tensor:
            return node.args[0], node.args[1]
        if node.target is ATEN.mul.Tensor:
            for one, other in (node.args, node.args[::-1]):
                inverse = self._plain(other)
                if isinstance(inverse, Node) and inverse.target is ATEN.reciprocal.default:
                    return one, inverse.args[0]
        return None

    @staticmethod
    def _is_sum(node: Any) -> bool:
        """Returns whether the node is a sum over elements, so that the sums of two batches add up."""
        if not isinstance(node, Node):
            return False
        if node.target is operator.getitem and node.args[0].target in NLL:
            return node.args[1] == 1 or node.args[0].args[3] == SUM_OF_LOSS
        place = REDUCTIONS.get(node.target)
        if place is not None:
            return len(node.args) > place and node.args[place] == SUM_OF_LOSS
        return node.target in SUMS or node.target in COUNTS

    def _plain(self, node: Any, bounded: bool = False) -> Node:
        """Returns the node below linear operators and constant factors or, if ``bounded``, below linear operators and bounds."""
        while isinstance(node, Node):
            if bounded and node.target in BOUNDS and not self._varies(node.args[1]):
                node = node.args[0]
            elif node.target in SAME or (node.target in (*PRODUCTS, *QUOTIENTS) and not bounded and not self._varies(node.args[1])):
                node = node.args[0]
            else:
                return node
        return node


def _symbols(node: Node) -> Set[Any]:
    """Returns the symbols in the shape of a tensor of the graph."""
    sizes = getattr(node.meta.get("val"), "shape", ())
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}


def give_parts(graph: GraphModule, fields: range) -> Tuple[int, Optional[Node]]:
    """Adds outputs after the loss: its part that is a mean over the examples, then each quotient and its divisor.

    Args:
        graph: the graph of the held-out loss. Its outputs are unchanged if there is no quotient.
        fields: positions of the arguments that have the batch as their first dimension.

    Returns:
        The number of quotients, and an operator because of which the loss does not add up over batches; None without one.
    """
    output = next(iter(graph.graph.find_nodes(op="output")))
    loss, = output.args[0]
    with graph.graph.inserting_before(output):
        finder = Finder(graph, fields)
        parts = finder.split(loss)
        unfound = finder.unfound(loss)
        if not parts.quotients:
            return 0, unfound
        mean = graph.graph.call_function(ATEN.zeros_like.default, (loss,)) if parts.mean is None else parts.mean
        flat: Tuple[Node, ...] = tuple(value for quotient in parts.quotients for value in quotient)
    output.args = ((loss, mean, *flat),)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return len(parts.quotients), unfound
