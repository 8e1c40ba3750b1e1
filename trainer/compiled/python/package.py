"""Compiles the package of a step and installs it in the folder of packages."""

import ctypes
import hashlib
import itertools
import logging
import os
import pathlib
import platform
import shutil
import tempfile
import warnings

import torch

import changed_buffers
import complex_numbers
import decompositions
import memory_order
import partition
import random_numbers

METADATA_KEY = "genesis_step"  # Same as in trainer/compiled/package_file.cc.
LIBRARY = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def use_library_for_all():
    """Makes LibTorch's symbols global in this process, because Python loads them as local.

    A package resolves LibTorch's symbols in the program that loads it, so that it needs neither libtorch_cuda.so nor a search path."""
    ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)


def pick_vector_instructions():
    """Selects the processor's widest vector instructions for which a test library compiles and loads.

    The result is the same as inductor's own. Inductor would try all instruction sets, and load ten libraries in processes that import
    torch, which takes half of the compilation time of a small step.
    """
    isa = torch._inductor.cpu_vec_isa
    isa.VecISA._avx_py_load = (f"import ctypes; ctypes.CDLL({str(LIBRARY)!r}, mode=ctypes.RTLD_GLOBAL); "
                               "ctypes.CDLL('__lib_path__')")
    if platform.machine() == "x86_64":
        seen = isa.x86_isa_checker()
        works = (each for each in isa.supported_vec_isa_list if all(flag in seen for flag in str(each).split()) and each)
        found = list(itertools.islice(works, 1))
        isa.valid_vec_isa_list = lambda: found
    isa.pick_vec_isa()


def export(step, inputs):
    """Returns the exported program, and whether it draws random numbers."""
    # torch.export fails for a function that computes gradients, but not for the graph of one.
    graph = decompositions.trace(step, inputs)
    random_numbers.take_shapes_alone(graph.graph)
    draws = random_numbers.draw_first(graph.graph)
    memory_order.lay_out_in_channels_last(graph.graph)
    graph.recompile()
    graph = partition.compute_anew(graph, inputs)
    decompositions.multiply_before_adding(graph.graph)
    complex_numbers.make_of_parts(graph)
    with torch.no_grad():
        return torch.export.export(graph, tuple(inputs), strict=False), draws


def compile_package(step, inputs, text, path):
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    # Use a separate cache. Inductor's cache stores whether vector instructions work, which it tests with a library linked like that of the
    # first caller. If that library was not linked with LibTorch, the cache would store "no" for all later callers.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(path.with_name("cache"))
    pick_vector_instructions()
    random_numbers.draw_into_memory_as_it_is()
    random_numbers.leave_permutations_alone()
    changed_buffers.write_after_reading()
    program, draws = export(step, inputs)
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(path), inductor_configs={
            # The worker sets the number of threads of a job.
            "cpp.dynamic_threads": True,
            # Random operators draw the same numbers as in eager mode.
            "fallback_random": True,
            "reorder_for_locality": not draws,
            "reorder_for_peak_memory": not draws,
            "aot_inductor.link_libtorch": False,
            "aot_inductor.metadata": {METADATA_KEY: text}})


def load(path):
    use_library_for_all()
    return torch._inductor.aoti_load_package(str(path))


def sum_path(path):
    return path.with_name(path.name + ".sha256")


def sum_line(path):
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def is_installed(folder, key):
    path = folder / f"{key}.pt2"
    return path.exists() and sum_path(path).exists() and sum_path(path).read_text() == sum_line(path)


def make_folder(folder):
    """Creates the folder if it does not exist.

    Workers execute its content, so only its owner may be able to write to it.

    Raises:
        PermissionError: the group or others can write to it.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o022:
        raise PermissionError(f"{folder} may be written by others, and workers would not use it; "
                              f"chmod go-w {folder}")


def flush(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Workplace:
    """A temporary folder in which a package is built. It is inside `folder`, and so on the same file system."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        # The compiler runs in other folders, so the path must be absolute.
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=".making-", dir=self.folder)).resolve()
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def seal(made):
    """Adds the checksum file, and makes both files writable only by their owner, as workers require."""
    sums = sum_path(made)
    sums.write_text(sum_line(made))
    for path in (made, sums):
        path.chmod(0o644)


def install(made, folder):
    """Moves a sealed package to the folder. Its checksum comes last, because workers ignore a package without one."""
    target = folder / made.name
    sum_path(target).unlink(missing_ok=True)
    for path in (made, sum_path(made)):
        flush(path)
        os.replace(path, folder / path.name)
        flush(folder)
    return target
