"""Compiled samplers are compiled once, and anew when any file changes that they are made of."""

import os
import subprocess
import sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from loopless.compiled import aliases as numba_aliases
from loopless.compiled import episodic as numba_episodic
from loopless.compiled import jit as numba_jit
from loopless.compiled import random as numba_random
from loopless.compiled import ring as numba_ring
from loopless.compiled.digest import digest_of

KERNELS = """
import helper
from loopless.compiled.jit import jit
from loopless.compiled.digest import digest_of

def compile(digest):
    @jit()
    def kernel(x):
        _ = digest
        return helper.add(x)

    return kernel

aware, unaware = compile(digest_of(__file__, helper)), compile("")
"""
HELPER = """
from numba.extending import register_jitable

@register_jitable
def add(x):
    return x + 1
"""
CALL = """
from kernels import aware, unaware
print(*[(kernel(1), len(kernel.stats.cache_hits)) for kernel in (aware, unaware)])
"""


def values_and_hits(folder: Path) -> str:
    """What the kernels in `folder` give in a fresh interpreter, and if they were in the cache."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", CALL]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_kernel_is_compiled_anew_when_a_file_changes_that_it_compiles_in(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "helper.py").write_text(HELPER)
    assert values_and_hits(tmp_path) == "(2, 0) (2, 0)"
    assert values_and_hits(tmp_path) == "(2, 1) (2, 1)"
    (tmp_path / "helper.py").write_text(HELPER.replace("x + 1", "x + 2"))
    assert values_and_hits(tmp_path) == "(3, 0) (2, 1)"  # without a digest the old one lives on


def test_nothing_is_cached_here_without_the_digest():
    """A cached helper would be linked in as it was, however new the kernel is."""
    own = {
        name: found
        for name, found in vars(numba_episodic).items()
        if isinstance(found, Dispatcher) and found.__module__ == numba_episodic.__name__
    }
    assert set(own) == {"sample"}
    function = own["sample"].py_func
    cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    own_files = numba_aliases, numba_jit, numba_random, numba_ring
    assert cells["digest"].cell_contents == digest_of(numba_episodic, *own_files)


def test_a_digest_changes_with_each_of_its_files(tmp_path):
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("a = 1")
    other.write_text("b = 1")
    before = digest_of(str(one), str(other))
    assert digest_of(str(one), str(other)) == before
    other.write_text("b = 2")
    assert digest_of(str(one), str(other)) != before
