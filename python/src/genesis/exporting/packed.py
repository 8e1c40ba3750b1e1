"""Turns traced graphs into exported programs, and packs each as the records of a file."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, Dict, Set, Tuple
from unittest import mock

import torch
from torch._export.verifier import TrainingIRVerifier
from torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

Records = Dict[str, bytes]

# Arguments that later versions of torch name differently, with their names in LibTorch 2.11, which the workers run, by operator.
NAMES = {"torch.ops.aten._cdist_backward.default": {"grad_output": "grad"}, "torch.ops.aten._pdist_backward.default": {"grad_output": "grad"}}


def program_of(graph: torch.fx.GraphModule, arguments: Tuple[torch.Tensor, ...]) -> ExportedProgram:
    """Returns a traced graph as the program that ``torch.export`` would return, without the second trace that ``torch.export`` needs.

    Args:
        graph: a graph whose inputs and outputs are tensors, and whose sizes are numbers or depend only on the batch size (tracing.is_complete).
        arguments: example arguments.
    """
    _add_values(graph, arguments)
    symbols = _share_sizes(graph.graph)
    inputs = [TensorArgument(node.name) for node in graph.graph.find_nodes(op="placeholder")]
    output = next(iter(graph.graph.find_nodes(op="output")))
    outputs = [TensorArgument(node.name) for node in output.args[0]]
    signature = ExportGraphSignature([InputSpec(InputKind.USER_INPUT, each, None) for each in inputs],
                                     [OutputSpec(OutputKind.USER_OUTPUT, each, None) for each in outputs])
    call = ModuleCallSignature([], [], pytree.tree_flatten((arguments, {}))[1], pytree.tree_flatten(tuple(outputs))[1])
    # The range of a batch size in torch.export.Dim.
    ranges = {symbol: ValueRanges(0, int_oo) for symbol in symbols}
    return ExportedProgram(root=graph, graph=graph.graph, graph_signature=signature, state_dict={}, range_constraints=ranges,
                           module_call_graph=[ModuleCallEntry("", call)], verifiers=[TrainingIRVerifier])


def _add_values(graph: torch.fx.GraphModule, arguments: Tuple[torch.Tensor, ...]) -> None:
    """Computes the shapes and types of nodes that were added after the trace."""
    inputs = graph.graph.find_nodes(op="placeholder")
    mode = next(iter(inputs)).meta["val"].fake_mode
    for node, argument in zip(inputs, arguments):
        if "val" not in node.meta:
            node.meta["val"] = mode.from_tensor(argument, static_shapes=True)
    with mode:
        for node in graph.graph.nodes:
            if node.op == "call_function" and "val" not in node.meta:
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
                node.meta["val"] = node.target(*args, **kwargs)


def _share_sizes(graph: torch.fx.Graph) -> Set[Any]:
    """Computes each size that depends on the batch once. Returns the symbols in sizes, at most that of the batch."""
    first: Dict[Any, torch.fx.Node] = {}
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            same = first.setdefault(value.node.expr, node)
            if same is not node:
                node.replace_all_uses_with(same)
                graph.erase_node(node)
    for node in reversed(list(first.values())):
        if not node.users:
            graph.erase_node(node)
    return {symbol for node in graph.find_nodes(op="placeholder") for size in node.meta["val"].shape if isinstance(size, torch.SymInt)
            for symbol in size.node.expr.free_symbols}


def pack(name: str, program: ExportedProgram) -> Records:
    """Returns the records of a file that contains the program, by name.

    Skips torch's canonical names of nodes, because computing them takes longer than all the rest."""
    from torch._export.serde import serialize
    from torch.export.pt2_archive._package import package_pt2

    packed = io.BytesIO()
    with mock.patch.object(serialize, "canonicalize", lambda program, constants=None: program):
        package_pt2(packed, exported_programs={name: program})
    with zipfile.ZipFile(packed) as archive:
        # Records of sample inputs are pickles, which the trainer does not read.
        return {record.split("/", 1)[1]: archive.read(record) for record in archive.namelist() if "/sample_inputs/" not in record}


def for_workers(name: str, records: Records) -> Records:
    """Returns the records of a program with the arguments of its operators named as in the LibTorch of the workers."""
    path = f"models/{name}.json"
    if not any(target.encode() in records[path] for target in NAMES):
        return records
    program = json.loads(records[path])
    for node in program["graph_module"]["graph"]["nodes"]:
        for argument in node["inputs"]:
            argument["name"] = NAMES.get(node["target"], {}).get(argument["name"], argument["name"])
    return {**records, path: json.dumps(program).encode()}
