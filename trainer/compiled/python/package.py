"""Makes a package of a step and puts it into the folder that workers look in."""

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

METADATA_KEY = "genesis_step"  # As trainer/compiled/compiled_step.cc.
LIBRARY = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def use_library_for_all():
    """A package leaves the symbols of LibTorch to the program that loads it, so that it needs neither
    libtorch_cuda.so nor a search path; Python keeps them to itself unless asked."""
    ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)


def pick_vector_instructions():
    """Tries the processor's vector instructions, the widest first, until a set compiles and loads.

    Inductor by itself tries all sets, and loads each of ten libraries into a Python that imports torch: half of the time
    that a small step takes to compile. It does so again where this function is not called, with the same result.
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
    """The graph, and whether it draws random numbers."""
    # torch.export of a function that asks for gradients itself fails; of the graph it does not.
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
    # A cache of its own: whether vector instructions work is tried there once, by a library that is linked
    # as the first to ask is, and one that is not linked with LibTorch says no, to all who ask later.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(path.with_name("cache"))
    pick_vector_instructions()
    random_numbers.draw_into_memory_as_it_is()
    random_numbers.leave_permutations_alone()
    changed_buffers.write_after_reading()
    program, draws = export(step, inputs)
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(path), inductor_configs={
            # The worker decides how many threads a job has.
            "cpp.dynamic_threads": True,
            # A module that draws numbers draws those that it draws in eager mode.
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
    """Only its owner may write it, for workers run what is in it."""
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
    """A folder inside `folder` to make a package in; it is on the same file system and vanishes."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        # Absolute: the compiler works in folders of its own.
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=".making-", dir=self.folder)).resolve()
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def seal(made):
    """Makes it a package that workers take: with its checksum, written by nobody else."""
    sums = sum_path(made)
    sums.write_text(sum_line(made))
    for path in (made, sums):
        path.chmod(0o644)


def install(made, folder):
    """Moves a sealed package; the checksum comes last: a package without one does not count."""
    target = folder / made.name
    sum_path(target).unlink(missing_ok=True)
    for path in (made, sum_path(made)):
        flush(path)
        os.replace(path, folder / path.name)
        flush(folder)
    return target
