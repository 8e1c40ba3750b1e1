"""Splits the held-out loss into parts that can be combined over batches.

A loss that divides by the number of labels that count (cross-entropy with ``ignore_index`` or ``weight``, or a mask) is not a mean over
examples: the mean of the losses of two batches is not the loss of both together. This module finds such quotients in the graph of the
held-out loss, and returns the numerator and the divisor of each, which add up. A bound of the divisor is applied to the sum over all batches.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, Union

import torch
from torch.fx import GraphModule, Node

from genesis.exporting.row_mixing import RowMixing

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
CONSTANTS = {ATEN.zeros_like.default, ATEN.ones_like.default, ATEN.full_like.default, ATEN.empty_like.default, ATEN.new_zeros.default,
             ATEN.new_ones.default, ATEN.new_full.default, ATEN.new_empty.default}
STACKS = {ATEN.stack.default, ATEN.cat.default}
# Operators that bound a divisor from below.
BOUNDS = {ATEN.clamp.default, ATEN.clamp_min.default, ATEN.maximum.default, ATEN.clamp.Tensor, ATEN.clamp_min.Tensor}
# Linear operators on values of a whole batch, apart from products, quotients and choices.
LINEAR = {*SAME, *SUMMANDS, *SUMS, *MEANS, *STACKS, ATEN.select.int, ATEN.slice.Tensor, ATEN.expand.default, ATEN.permute.default,
          ATEN.t.default, ATEN.unbind.int, operator.getitem}
# Number of outputs of the graph for each quotient.
OUTPUTS = 6
# Lower bound of a divisor that has none.
LOWEST = torch.finfo(torch.float32).min

Constant = Union[int, float, Node]  # Does not depend on the batch.


class Divisor(NamedTuple):
    """The divisor max(sum + added, least) of a loss. The sum, or the mean in its place, is over the elements of the batch."""

    reduction: Node
    added: Constant = 0
    least: Constant = LOWEST
    factor: Constant = 1  # Factor of the reduction.

    @property
    def is_mean(self) -> bool:
        return self.reduction.target in MEANS


class Quotient(NamedTuple):
    """A term of the loss that is a quotient. For several batches it is the sum of ``numerator``, divided by
    max(sum of ``divisor`` + sum of ``added`` + ``added_once``, sum of ``least`` + ``least_once``)."""

    numerator: Node
    divisor: Node
    added: Constant
    added_once: Constant
    least: Constant
    least_once: Constant
    # Node from which `divisor` is computed: a sum, a mean, or the total weight of an NLL loss.
    reduction: Node


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
        # The quotients that were found, each with the nodes of its numerator and of the sum in its divisor.
        self.found: Dict[Node, List[Node]] = {}
        fields_of_graph = [node for position, node in enumerate(self.graph.nodes) if position in fields]
        # The symbol of the batch size; None if the graph supports one size.
        self.symbol = next(iter(_symbols(fields_of_graph[0])), None)

    def _of_batch(self, sizes: bool) -> Set[Node]:
        """Returns the nodes whose values depend on the batch; without ``sizes``, not those that depend only on its size."""
        found: Set[Node] = set()
        for position, node in enumerate(self.graph.nodes):
            if (node.op == "placeholder" and position in self.fields) or any(each in found for each in node.all_input_nodes):
                if node.target not in CONSTANTS and (sizes or node.target not in SIZES):
                    found.add(node)
        return found

    def unfound(self, loss: Node) -> str:
        """Returns why the loss does not add up over batches: an operator on a value of the whole batch that is not linear, or one that
        computes with several rows. Returns "" if there is none. Quotients that were found add up."""
        if self.symbol is None:
            return ""
        rows = RowMixing(self.graph.nodes, self.of_values, self.symbol)
        todo, seen = [loss], {loss}
        while todo:
            node = todo.pop()
            inputs = self.found.get(node)
            if inputs is None:
                inputs = rows.inputs(node)
                if ((node.target in NLL and node.args[3] == MEAN_OF_LOSS)
                        or (any(map(self._is_of_whole_batch, inputs)) and not (self._is_of_whole_batch(node) and self._is_linear(node)))):
                    return f"{node.target} takes a value of the whole batch"
                if rows.mixes(node):
                    return f"{node.target} computes with several rows of the batch"
            todo += [each for each in inputs if each in self.of_values and each not in seen]
            seen.update(inputs)
        return ""

    def _is_of_whole_batch(self, node: Any) -> bool:
        return (self.symbol is not None and node in self.of_values and isinstance(node.meta.get("val"), torch.Tensor)
                and self.symbol not in _symbols(node))

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
                     [each._replace(numerator=change(each.numerator)) for each in parts.quotients])

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

    def as_output(self, value: Constant, loss: Node) -> Node:
        """Returns a constant as a tensor of the graph."""
        if isinstance(value, Node) and value.op != "call_function":  # An input of the graph.
            return self.graph.call_function(ATEN.clone.default, (value,))
        return self._tensor(value, loss)

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
            return self._of_nll(node)
        if node.target is ATEN.nan_to_num.default or self._replaces_nan(node):
            # The other value is the result for batches whose divisor is 0.
            inside = node.args[0] if node.target is ATEN.nan_to_num.default else node.args[2]
            found = self._quotient(inside)
            if found is not None:
                self.found[node] = [inside]
            return found
        if node.target is ATEN.where.self and self._varies(node.args[0]) and not self._varies(node.args[2]):
            # The other value is the result for batches in which nothing counts. Their divisor is 0.
            before = dict(self.found)
            found = self._quotient(node.args[1])
            if found is not None and self._asks_for(node.args[0], found.reduction):
                self.found[node] = [node.args[1]]
                return found
            self.found = before
            return None
        terms = self._terms(node)
        if terms is None or not self._varies(terms[1]) or "val" not in node.meta or node.meta["val"].dim():
            return None
        divisor = self._divisor(terms[1])
        if divisor is None or not self._adds_up(terms[0], divisor.is_mean):
            return None
        self.found[node] = [terms[0], divisor.reduction]
        return self._of_terms(self._numerator(node, terms[0]), divisor)

    def _of_nll(self, node: Node) -> Quotient:
        """Returns the quotient of a mean over labels, which is NaN if no label counts."""
        divisor = self.graph.call_function(operator.getitem, (node.args[0], 1))
        numerator = self.graph.call_function(ATEN.where.self, (
            self.graph.call_function(ATEN.ne.Scalar, (divisor, 0)), self.graph.call_function(ATEN.mul.Tensor, (node, divisor)),
            self.graph.call_function(ATEN.zeros_like.default, (node,))))
        return Quotient(numerator, divisor, 0, 0, 0, LOWEST, divisor)

    def _of_terms(self, numerator: Node, divisor: Divisor) -> Quotient:
        added, least = divisor.added, divisor.least
        if not divisor.is_mean:
            return Quotient(numerator, self._times(divisor.reduction, divisor.factor), 0, added, 0, least, divisor.reduction)
        # Means become sums. Therefore a bound of the mean is multiplied by the number of elements.
        elements = divisor.reduction.args[0]
        count = self.graph.call_function(ATEN.sum.default, (self.graph.call_function(ATEN.ones_like.default, (elements,)),))
        total = self._times(self.graph.call_function(ATEN.sum.default, (elements,)), divisor.factor)
        bounded = least is not LOWEST
        return Quotient(self._times(numerator, count), total, self._times(count, added), 0, self._times(count, least) if bounded else 0,
                        0 if bounded else LOWEST, divisor.reduction)

    def _divisor(self, node: Any) -> Optional[Divisor]:
        """Returns the sum or mean in a divisor, with its bound; None if the node is not such a divisor."""
        if not isinstance(node, Node):
            return None
        if self._is_sum(node) or node.target in MEANS:
            return Divisor(node) if self._adds_up(node, node.target in MEANS) and not self._is_of_whole_batch(node.args[0]) else None
        if node.target is ATEN.neg.default:
            return self._scaled(node.args[0], -1)
        if node.target in SAME:
            return self._divisor(node.args[0])
        if len(node.args) < 2 or node.kwargs:
            return None
        first, second = node.args[:2]
        if node.target in (*PRODUCTS, *QUOTIENTS):
            if not self._varies(second):
                return self._scaled(first, second if node.target in PRODUCTS else self._inverse(second))
            return self._scaled(second, first) if node.target in PRODUCTS and not self._varies(first) else None
        if self._varies(second):  # The constant is first in torch.maximum(one, count).
            first, second = second, first
        if self._varies(second) or second is None or len(node.args) > 2:
            return None
        if node.target in SUMMANDS and node.target not in TAKEN_FROM:
            if node.target in DIFFERENCES:
                if first is not node.args[0]:
                    return None
                second = self._times(second, -1)
            found = self._divisor(first)
            return found and found._replace(added=self._plus(found.added, second),
                                            least=LOWEST if found.least is LOWEST else self._plus(found.least, second))
        if node.target in BOUNDS:
            found = self._divisor(first)
            return found and found._replace(least=second if found.least is LOWEST else self._greater(found.least, second))
        return None

    def _scaled(self, node: Any, factor: Constant) -> Optional[Divisor]:
        found = self._divisor(node)
        if found is None:
            return None
        if found.least is not LOWEST and (isinstance(factor, Node) or factor <= 0):  # The bound may become an upper one.
            return None
        return found._replace(factor=self._times(found.factor, factor), added=self._times(found.added, factor),
                              least=LOWEST if found.least is LOWEST else self._times(found.least, factor))

    def _times(self, first: Constant, second: Constant) -> Any:
        return self._computed(ATEN.mul.Tensor, operator.mul, first, second)

    def _plus(self, first: Constant, second: Constant) -> Any:
        return self._computed(ATEN.add.Tensor, operator.add, first, second)

    def _greater(self, first: Constant, second: Constant) -> Any:
        both = isinstance(first, Node) and isinstance(second, Node)
        return self._computed(ATEN.maximum.default if both else ATEN.clamp_min.default, max, first, second)

    def _inverse(self, value: Constant) -> Constant:
        return self.graph.call_function(ATEN.reciprocal.default, (value,)) if isinstance(value, Node) else 1 / value

    def _computed(self, operation: Any, of_numbers: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
        """Computes with two values, in the graph unless both are numbers. Leaves out operations with 0 and 1 that change nothing."""
        if not isinstance(first, Node):
            first, second = second, first
        if not isinstance(first, Node):
            return of_numbers(first, second)
        if not isinstance(second, Node) and operation is not ATEN.clamp_min.default:
            if second == (1 if operation is ATEN.mul.Tensor else 0):
                return first
            if second == 0:
                return 0
        return self.graph.call_function(operation, (first, second))

    def _adds_up(self, node: Any, is_mean: bool) -> bool:
        """Returns whether the value of a whole batch is a linear function, without a constant, of sums or means over its elements."""
        if not isinstance(node, Node):
            return node == 0
        inside = node.args[0] if node.args else None
        if node.target in (*SUMS, *MEANS):
            if isinstance(inside, Node) and inside.target in STACKS and self._is_of_whole_batch(inside):
                return all(self._adds_up(each, is_mean) for each in inside.args[0])
            if self._is_of_whole_batch(inside):
                return self._adds_up(inside, is_mean)
            return node.target in (MEANS if is_mean else SUMS)
        if node.target in SAME:
            return self._adds_up(inside, is_mean)
        if node.target in SUMMANDS and not node.kwargs:
            return all(self._adds_up(each, is_mean) for each in node.args[:2])
        if node.target in PRODUCTS:
            return any(self._adds_up(one, is_mean) and not self._varies(other) for one, other in (node.args[:2], node.args[1::-1])
                       if isinstance(one, Node))
        if node.target in QUOTIENTS:
            return self._adds_up(inside, is_mean) and not self._varies(node.args[1])
        if node.target is ATEN.where.self:
            return not self._varies(inside) and all(self._adds_up(each, is_mean) for each in node.args[1:3])
        if is_mean:
            place = REDUCTIONS.get(node.target)
            return place is not None and (len(node.args) <= place or node.args[place] == MEAN_OF_LOSS)
        return self._is_sum(node)

    def _replaces_nan(self, node: Node) -> bool:
        """Returns whether the node is ``torch.where(torch.isnan(x), constant, x)``."""
        return (node.target is ATEN.where.self and not self._varies(node.args[1]) and isinstance(node.args[0], Node)
                and node.args[0].target is ATEN.isnan.default and node.args[0].args[0] is node.args[2])

    def _asks_for(self, condition: Any, divisor: Node) -> bool:
        """Returns whether a condition compares the divisor with a constant, as in ``mask.sum() > 0``, or is ``mask.any()``."""
        condition = self._plain(condition)
        if not isinstance(condition, Node):
            return False
        if condition.target in COMPARISONS and not self._varies(condition.args[1]):
            condition = self._plain(condition.args[0])
        elif condition.target is not ATEN.any.default:
            return False
        return isinstance(condition, Node) and bool(condition.args) and self._alike(self._counted(condition), self._counted(divisor))

    def _counted(self, node: Node) -> Any:
        """Returns the values that a reduction adds up, before casts."""
        return node if node.target is operator.getitem else self._plain(node.args[0])

    def _alike(self, first: Any, second: Any) -> bool:
        """Returns whether two values of the graph are results of the same computation."""
        if not isinstance(first, Node) or not isinstance(second, Node):
            return type(first) is type(second) and first == second
        return first is second or (first.op == second.op == "call_function" and first.target is second.target and first.kwargs == second.kwargs
                                   and len(first.args) == len(second.args) and all(map(self._alike, first.args, second.args)))

    def _terms(self, node: Node) -> Optional[Tuple[Any, Any]]:
        """Returns (numerator, divisor) of a quotient or of a product with a reciprocal; None for other nodes. ``_numerator`` adds the factors
        of the reciprocal."""
        if node.target is ATEN.div.Tensor:
            return node.args[0], node.args[1]
        if node.target is ATEN.mul.Tensor:
            for one, other in (node.args, node.args[::-1]):
                inverse = self._plain(other)
                if isinstance(inverse, Node) and inverse.target is ATEN.reciprocal.default:
                    return one, inverse.args[0]
        return None

    def _numerator(self, node: Node, numerator: Node) -> Node:
        if node.target is ATEN.div.Tensor:
            return numerator
        other = node.args[1] if node.args[0] is numerator else node.args[0]
        steps = []
        while other.target is not ATEN.reciprocal.default:
            place = next(place for place, each in enumerate(other.args) if self._varies(each))
            steps.append((other, place))
            other = other.args[place]
        for step, place in reversed(steps):
            arguments = (*step.args[:place], numerator, *step.args[place + 1:])
            numerator = self.graph.call_function(step.target, arguments, step.kwargs)
        return numerator

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

    def _plain(self, node: Any) -> Any:
        """Returns the node below linear operators and constant factors."""
        while isinstance(node, Node):
            if node.target in SAME or (node.target in (*PRODUCTS, *QUOTIENTS) and not self._varies(node.args[1])):
                node = node.args[0]
            elif node.target in PRODUCTS and not self._varies(node.args[0]):
                node = node.args[1]
            else:
                return node
        return node


def _symbols(node: Node) -> Set[Any]:
    """Returns the symbols in the shape of a tensor of the graph."""
    sizes = getattr(node.meta.get("val"), "shape", ())
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}


def give_parts(graph: GraphModule, fields: range) -> Tuple[int, str]:
    """Adds outputs after the loss: its part that is a mean over the examples, then six numbers for each quotient, those of ``Quotient``.

    Args:
        graph: the graph of the held-out loss. Its outputs are unchanged if there is no quotient.
        fields: positions of the arguments that have the batch as their first dimension.

    Returns:
        The number of quotients, and an operator because of which the loss does not add up over batches; "" without one.
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
        flat: Tuple[Node, ...] = tuple(finder.as_output(value, loss) for quotient in parts.quotients for value in quotient[:OUTPUTS])
    output.args = ((loss, mean, *flat),)
    graph.graph.eliminate_dead_code()
    return len(parts.quotients), unfound
