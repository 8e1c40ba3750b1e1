"""The models of trainer/models in plain Python and torch: one module each.

A twin's state_dict() has the names of the C++ model, its weights are drawn in the same order, and
its loss is computed from the same fields. Tests compare the two (tests/interop), and the
compiled step is built from the twin (compile_step.py).
"""
