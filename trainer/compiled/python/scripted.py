"""A user's TorchScript module: its loss as a function of parameters, buffers and batch, computed as
trainer/models/scripted_model.cc computes it."""

import contextlib
import warnings

import torch
from torch.utils import _pytree as pytree

from step import LossTwin, StepError

LOSSES = {"SCRIPTED_LOSS_MSE": torch.nn.functional.mse_loss,
          "SCRIPTED_LOSS_CROSS_ENTROPY": torch.nn.functional.cross_entropy,
          "SCRIPTED_LOSS_HUBER": torch.nn.functional.huber_loss}


def refuse(names, done):
    """What forward does to an attribute would be done once, while the graph is made, and never again."""
    if names:
        raise StepError(f"forward {done} {', '.join('self.' + name for name in sorted(names))}; a compiled step keeps nothing but "
                        "parameters and buffers that are changed in place")


def has(type, kinds):
    """Whether values of this type of TorchScript are or hold some of these kinds."""
    return type.kind() in kinds or any(has(each, kinds) for each in type.containedTypes())


def memory_of(tensor):
    return tensor.untyped_storage().data_ptr()


@contextlib.contextmanager
def without_onednn():
    flags = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # That there is no Intel GPU.
        with flags:
            yield


class ScriptedTwin(LossTwin):
    """The module of a step description, loaded from `path`."""

    def __init__(self, path, description):
        self.spec = description["model"]["torchscript"]
        self.module = torch.jit.load(path, map_location="cpu")
        self.module.train()
        graph = self.module.inlined_graph  # Which owns its nodes.
        # An object that forward makes, such as a torch.no_grad(), is new each time.
        refuse({node.s("name") for node in graph.findAllNodes("prim::SetAttr", recurse=True)
                if next(node.inputs()).node().kind() != "prim::CreateObject"}, "assigns")
        # oneDNN's LSTM is one operator, of whose gradients a package has none; torch's other one is made of products.
        self.way = without_onednn if graph.findAllNodes("aten::lstm", recurse=True) else contextlib.nullcontext
        self.tensors = {**dict(self.module.named_parameters(remove_duplicate=False)),
                        **dict(self.module.named_buffers(remove_duplicate=False))}
        self.attributes = self._attributes()
        for tensor in self.tensors.values():
            if tensor.is_floating_point():
                tensor.data = tensor.data.float()
        self.tried = False
        self.described = {what: [entry["name"] for entry in description[what]]
                          for what in ("parameters", "buffers")}

    def _attributes(self):
        """(module, attribute) by name, of those that may hold tensors."""
        own = {id(tensor) for tensor in self.tensors.values()}
        memory = {memory_of(tensor) for tensor in self.tensors.values()}
        found = {}
        for path, module in self.module.named_modules():
            for leaf, (type, _) in module._concrete_type.get_attributes().items():
                name = f"{path}.{leaf}".lstrip(".")
                if type.kind() == "EnumType":
                    continue
                if has(type, ("ClassType", "EnumType")):
                    raise StepError(f"self.{name} holds an object of a class; accepted: tensors, numbers and text, and lists, tuples and "
                                    "dictionaries of them")
                found[name] = module._c, leaf
                rest = [value for value in pytree.tree_leaves(module._c.getattr(leaf))
                        if isinstance(value, torch.Tensor) and id(value) not in own]
                if any(value.numel() and memory_of(value) in memory for value in rest):
                    raise StepError(f"self.{name} shares memory with a parameter or buffer, and would be a constant of a compiled step; "
                                    "make that view in forward")
        return found

    def _named(self, what):
        return [(name, self.tensors[name]) for name in self.described[what] if name in self.tensors]

    def named_parameters(self):
        return self._named("parameters")

    def named_buffers(self):
        return self._named("buffers")

    @contextlib.contextmanager
    def _holding(self, tensors):
        """With these in the place of its own, wherever it has them: recurrent layers of torch have their weights in a list, too."""
        given = {id(self.tensors[name]): tensor for name, tensor in tensors.items()}
        before = [(owner, leaf, owner.getattr(leaf)) for owner, leaf in self.attributes.values()]
        places = [place for place in before if any(id(own) in given for own in pytree.tree_leaves(place[-1]))]
        try:
            for owner, leaf, value in places:
                owner.setattr(leaf, pytree.tree_map(lambda own: given.get(id(own), own), value))
            yield
        finally:
            for owner, leaf, value in places:
                owner.setattr(leaf, value)

    def _state(self, tensors):
        """What its attributes hold besides these, and how often each tensor has been changed."""
        known = {id(tensor) for tensor in tensors.values()}
        state = {}
        for name, (owner, leaf) in self.attributes.items():
            values, structure = pytree.tree_flatten(owner.getattr(leaf))
            rest = [value for value in values if id(value) not in known]
            state[name] = (structure, [(id(value), value._version) if isinstance(value, torch.Tensor) else value for value in rest],
                           rest)  # Held, so that no other has its id.
        return state

    def _run(self, tensors, given):
        if self.tried:
            return self.module(*given)
        self.tried = True
        before = self._state(tensors)
        output = self.module(*given)
        after = self._state(tensors)
        refuse([name for name in before if before[name][:2] != after[name][:2]], "changes")
        return output

    def loss_with(self, tensors, fields, autocast):
        format = tensors[self.described["parameters"][0]].dtype
        given = [fields[name] for name in self.spec["inputs"]]
        given = [each.to(format) if each.is_floating_point() else each for each in given]
        # As the worker runs it: the graph executor's optimisations are off.
        with self._holding(tensors), torch.jit.optimized_execution(False), self.way(), autocast:
            output = self._run(tensors, given)
        output = output.float()
        if self.spec["loss"] not in LOSSES:
            return output.reshape(())
        target = fields[self.spec["target"]]
        classes = self.spec["loss"] == "SCRIPTED_LOSS_CROSS_ENTROPY"
        return LOSSES[self.spec["loss"]](output, target.long() if classes else target.float())
