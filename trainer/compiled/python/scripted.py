"""A user's TorchScript module: its loss as a function of parameters, buffers and batch, computed as
trainer/models/scripted_model.cc computes it."""

import contextlib
import functools

import torch

from step import LossTwin, StepError

LOSSES = {"SCRIPTED_LOSS_MSE": torch.nn.functional.mse_loss,
          "SCRIPTED_LOSS_CROSS_ENTROPY": torch.nn.functional.cross_entropy,
          "SCRIPTED_LOSS_HUBER": torch.nn.functional.huber_loss}


class ScriptedTwin(LossTwin):
    """The module of a step description, loaded from `path`."""

    def __init__(self, path, description):
        self.spec = description["model"]["torchscript"]
        self.module = torch.jit.load(path, map_location="cpu")
        self.module.train()
        self._refuse_assignments()
        # Names by tensor: tied parameters have several.
        self.names = {}
        for name, tensor in [*self.module.named_parameters(remove_duplicate=False),
                             *self.module.named_buffers(remove_duplicate=False)]:
            self.names.setdefault(id(tensor), (tensor, []))[1].append(name)
            if tensor.is_floating_point():
                tensor.data = tensor.data.float()
        self.tensors = {name: tensor for tensor, names in self.names.values() for name in names}
        self.described = {what: [entry["name"] for entry in description[what]]
                          for what in ("parameters", "buffers")}

    def _refuse_assignments(self):
        """What forward assigns would be assigned once, while the graph is made, and never again."""
        graph = self.module.inlined_graph  # Which owns its nodes.
        assigned = {node.s("name") for node in graph.findAllNodes("prim::SetAttr", recurse=True)}
        if assigned:
            raise StepError(f"forward assigns {', '.join('self.' + name for name in sorted(assigned))}; "
                            "a compiled step keeps nothing but parameters and buffers that are changed in "
                            "place")

    def _named(self, what):
        return [(name, self.tensors[name]) for name in self.described[what] if name in self.tensors]

    def named_parameters(self):
        return self._named("parameters")

    def named_buffers(self):
        return self._named("buffers")

    def _place(self, name):
        """The module that owns it, and its name there."""
        *path, leaf = name.split(".")
        return functools.reduce(getattr, path, self.module)._c, leaf

    @contextlib.contextmanager
    def _holding(self, tensors):
        """With these in the place of its own, under every name that they have."""
        places = [(*self._place(name), tensor) for given, tensor in tensors.items()
                  for name in self.names[id(self.tensors[given])][1]]
        before = [(owner, leaf, owner.getattr(leaf)) for owner, leaf, _ in places]
        try:
            for owner, leaf, tensor in places:
                owner.setattr(leaf, tensor)
            yield
        finally:
            for owner, leaf, tensor in before:
                owner.setattr(leaf, tensor)

    def loss_with(self, tensors, fields, autocast):
        format = tensors[self.described["parameters"][0]].dtype
        given = [fields[name] for name in self.spec["inputs"]]
        given = [each.to(format) if each.is_floating_point() else each for each in given]
        # As the worker runs it: the graph executor's optimisations are off.
        with self._holding(tensors), torch.jit.optimized_execution(False), autocast:
            output = self.module(*given)
        output = output.float()
        if self.spec["loss"] not in LOSSES:
            return output.reshape(())
        target = fields[self.spec["target"]]
        classes = self.spec["loss"] == "SCRIPTED_LOSS_CROSS_ENTROPY"
        return LOSSES[self.spec["loss"]](output, target.long() if classes else target.float())
