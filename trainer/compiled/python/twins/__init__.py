"""The models of trainer/models once more, in plain Python and torch: one module each.

A twin's state_dict() has the names of the C++ model, its weights are drawn in the same order, and
its loss is computed from the same fields. Tests hold the two together (tests/interop), and the
compiled step is made of the twin (compile_step.py).
"""
