"""Reads a user's module that genesis.export wrote, as a step function of parameters, buffers and batch.

Calls the graph as trainer/models/exported/exported_model.cc does."""

import functools
import json
import re
import zipfile

import torch

from step import StepError, laid_out

# Words that are allowed in expressions of sizes. torch passes these to sympy, which evaluates them as Python code.
WORDS = {"Symbol", "Integer", "Mul", "Add", "Pow", "Rational", "Mod", "FloorDiv", "CeilDiv", "CleanDiv", "Max", "Min", "ModularIndexing",
         "PythonMod", "positive", "integer", "nonnegative", "negative", "nonzero", "True", "False", "true", "false"}
SYMBOL = re.compile(r"'[suz]+\d+'")


class ExportedTwin:
    """The twin of an exported module, read from `path`. The worker has already checked the file's records, operators and sizes
    (genesis-worker --describe-step)."""

    def __init__(self, path, description):
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.manifest = json.loads(archive.read("module/extra/genesis.json"))
            # torch.frombuffer rejects an empty buffer even for a tensor without elements.
            self.tensors = {
                entry["name"]: torch.frombuffer(bytearray(archive.read(f"module/extra/tensors/{number}")) or bytearray(8),
                                                dtype=getattr(torch, entry["type"]))[:self._size(entry)].reshape(entry["shape"])
                for number, entry in enumerate(self.manifest["tensors"])}
        self.roles = {entry["name"]: entry["role"] for entry in self.manifest["tensors"]}
        lost = [name for name in self.manifest["changed"] if self.roles[name] == "passing"]
        if lost:
            raise StepError(f"forward changes {', '.join(sorted(lost))}, which state_dict() leaves out; a compiled step keeps nothing "
                            "but parameters and buffers of a checkpoint: register the buffer with persistent=True")

    @staticmethod
    def _size(entry):
        return torch.Size(entry["shape"]).numel()

    def _named(self, role):
        return [(name, tensor) for name, tensor in self.tensors.items() if self.roles[name] == role]

    def named_parameters(self):
        return self._named("trained")

    def named_buffers(self):
        return self._named("kept")

    @functools.cache  # The graph of FP32 is also the reference for the other precisions.
    def _graph(self, precision):
        from torch._export.serde.serialize import SerializedArtifact, deserialize

        if precision not in self.manifest["precisions"]:
            raise StepError(f"{self.path} has no graph of {precision}, with which what is compiled is compared; export the module for it too")
        with zipfile.ZipFile(self.path) as archive:
            graph = archive.read(f"module/models/{precision}.json")
        check_expressions(json.loads(graph))
        program = deserialize(SerializedArtifact(exported_program=graph, state_dict=b"", constants=b"", example_inputs=b""))
        return program.module(check_guards=False)

    def make_step(self, description):
        """Returns the step function (see step.py). Gradients and changed state are outputs of the graph."""
        graph = self._graph(description["mode"])
        parameters, buffers, fields = ([entry["name"] for entry in description[what]] for what in ("parameters", "buffers", "fields"))
        given = [name for name, role in self.roles.items() if role != "constant"]
        constants = [self.tensors[name] for name in self.manifest["constants"].get(description["mode"], [])]
        gradients, changed = self.manifest["gradients"], self.manifest["changed"]
        by_example = self.manifest["losses"] == "EXAMPLES"

        def step(scale, *tensors):
            named = dict(zip([*parameters, *buffers], tensors))
            batch = dict(zip(fields, tensors[len(named):]))
            inputs = [batch[field["name"]] for field in self.manifest["fields"]]
            # A compiled step gives all examples the weight 1.
            weights = [scale.new_ones(inputs[0].shape[0])] if by_example else []
            loss, *outputs = graph(scale, *inputs, *weights, *(named[name] if name in named else self.tensors[name] for name in given),
                                   *constants)
            if by_example:
                outputs = outputs[1:]
            made = dict(zip(gradients, outputs))
            for name, value in zip(changed, outputs[len(gradients):]):
                named[name].copy_(value)
            return (loss.float().reshape(()), *[laid_out(made[name].to(named[name].dtype), named[name]) if name in made else
                                                named[name].new_empty(0) for name in parameters])

        return step


def check_expressions(value):
    """Raises StepError if a size in the JSON value is not a plain expression of numbers and sizes."""
    if isinstance(value, dict):
        text = value.get("expr_str", "")
        words = re.findall(r"[^\W\d]\w*", SYMBOL.sub("", text)) if isinstance(text, str) else ["?"]
        if not set(words) <= WORDS or re.search(r"[^\w\s(),='.*/+-]", str(text)):
            raise StepError(f"a graph has the size {str(text)[:200]!r}; accepted: sums and products of whole numbers and sizes")
        value = value.values()
    elif not isinstance(value, list):
        return
    for each in value:
        check_expressions(each)
