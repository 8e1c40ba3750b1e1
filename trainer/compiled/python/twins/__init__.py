"""The models of trainer/models in Python and torch, one module each.

A twin's state_dict() has the names of the C++ model. Its weights are drawn in the same order, and its loss is computed from the same
fields. Tests compare both (tests/interop), and compile_step.py builds the compiled step from the twin.
"""
