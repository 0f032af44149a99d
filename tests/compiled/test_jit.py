"""A stored kernel is used again while nothing changed that it compiles in, and only then."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import loopless
from loopless.compiled.jit import digest, jit, overload

PACKAGE = Path(loopless.__file__).parent

# One call of each family of kernels, in a fresh process; each prints a number.
CALLS = {
    "scan recipe": """
rewards, ends = np.ones((3, 2)), np.zeros((3, 2), bool)
result = ll.gae(rewards, rewards, rewards, ends, ends, gamma=0.5, lambda_=0.5)[0].sum()
""",
    "windows": """
rewards, ends = np.ones((3, 2)), np.zeros((3, 2), bool)
result = ll.n_step_returns(rewards, rewards, ends, ends, gamma=0.5, n=2).sum()
""",
    "Q loss": """
result = ll.q_loss(np.ones((2, 3)), np.zeros(2, np.int64), np.zeros(2))[0]
""",
    "policy gradient": """
x = np.ones(2)
result = ll.ppo_loss(x, 0 * x, x, x, x, x)[0]
""",
    "logits": """
logits = np.arange(30, dtype=np.float32).reshape(2, 15) % 7
result = ll.cross_entropy(logits, np.zeros(2, np.int64))
""",
    "ring": """
buffer = ll.ReplayBuffer(capacity=1000, fields={"x": ((), np.int64)})
buffer.add(x=np.arange(1000))
result = buffer.sample(8)["x"].sum()
""",
    "tree": """
buffer = ll.PrioritizedReplayBuffer(capacity=1000, fields={"x": ((), np.int64)})
buffer.add(x=np.arange(1000))
result = buffer.sample(8, beta=0.4)["x"].sum()
""",
    "episodic": """
buffer = ll.EpisodicReplayBuffer(capacity=1000, fields={"obs": ((), np.int64)}, terminals="none")
buffer.add_episode(obs=np.arange(1000))
result = buffer.sample(8, discount=0.9)["obs"].sum()
""",
    "acting": """
from loopless.compiled.mlp import choose
actions = np.empty(50, np.int64)
choose(np.zeros((50, 9), np.float32), 1.0, 0.0, np.array([1, 0], np.uint64), actions)
result = actions.sum()
""",
    "grid walk": """
from loopless.compiled.environments import walk
targets, reached = np.array([[[0], [1]], [[0], [1]]]), np.ones((2, 2, 1))
obs, terminals, actions = np.zeros((1, 60), int), np.zeros((1, 60), bool), np.zeros((1, 60), int)
walk(targets, reached, np.empty((0, 0)), np.array([0]), np.zeros(2, bool), 90, 50, False,
     np.uint64(1), obs, terminals, actions, np.zeros(1, np.int64))
result = (actions[0] * np.arange(60)).sum()
""",
    "function that XLA calls": """
import handler, jax
assert handler.name
x = np.full(1, -0.3, np.float32)
result = jax.ffi.ffi_call(handler.name, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)[0]
""",
}
HANDLER = """
import numpy as np
from loopless.arrays import xla_cpu
from loopless.compiled.math import exp

def exponential(call):
    if not xla_cpu.is_question(call):
        x = xla_cpu.vector(call, xla_cpu.ARGUMENTS, 0, np.float32)
        xla_cpu.vector(call, xla_cpu.RESULTS, 0, np.float32)[0] = exp(x[0])
    return 0

name = xla_cpu.register("exponential", exponential)
"""
# What is changed, in a file other than the kernels' own.
RANDOM = (
    "compiled/random.py",
    "return z ^ (z >> np.uint64(31))",
    "return (z ^ (z >> np.uint64(31))) * np.uint64(3)",
)
EXPONENTIAL = ("compiled/math.py", "p * r * r + r + _ONE", "p * r * r + _HALF * r + _ONE")
EDITS = {
    "scan recipe": ("kernels/returns.py", "delta = row.rewards", "delta = 2.0 * row.rewards"),
    "windows": ("kernels/windows.py", "c = row.rewards +", "c = 2.0 * row.rewards +"),
    "Q loss": ("kernels/q_learning.py", "return error * error", "return 3.0 * error * error"),
    "policy gradient": ("kernels/policy_gradient.py", "change > clip)", "change > 100.0 * clip)"),
    "logits": EXPONENTIAL,
    "ring": RANDOM,
    "tree": RANDOM,
    "episodic": RANDOM,
    "acting": RANDOM,
    "grid walk": RANDOM,
    "function that XLA calls": EXPONENTIAL,
}


def fresh_process(code: str, folder: Path) -> str:
    """Return what a fresh interpreter prints, which imports and caches in `folder`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def results_of_all_families(folder: Path) -> dict[str, float]:
    lines = ["import json, numpy as np, loopless as ll", "results = {}"]
    for family, call in CALLS.items():
        lines += [call, f"results[{family!r}] = float(result)"]
    return json.loads(fresh_process("\n".join([*lines, "print(json.dumps(results))"]), folder))


@pytest.mark.slow
def test_edited_helpers_are_compiled_anew(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "loopless", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "handler.py").write_text(HANDLER)
    before = results_of_all_families(tmp_path)
    for file, text, other in set(EDITS.values()):
        path = tmp_path / "loopless" / file
        assert text in path.read_text(), (file, text)
        path.write_text(path.read_text().replace(text, other, 1))
    after = results_of_all_families(tmp_path)
    assert [family for family in CALLS if before[family] == after[family]] == []


KERNELS = """
import helper
from loopless.compiled.jit import jit

@jit()
def kernel(x):
    return helper.add(x)

print(kernel(1), len(kernel.stats.cache_hits))
"""
HELPER = """
from numba.extending import register_jitable
ADDEND = 1

@register_jitable
def add(x):
    return x + ADDEND
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "other"), [("x + A", "x * 10 + A"), ("ADDEND = 1", "ADDEND = 10")]
)
def test_a_kernel_is_stored_until_a_helper_or_a_constant_changes(tmp_path, text, other):
    (tmp_path / "loopless").symlink_to(PACKAGE)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "helper.py").write_text(HELPER)
    assert fresh_process("import kernels", tmp_path) == "2 0"
    assert fresh_process("import kernels", tmp_path) == "2 1"
    (tmp_path / "helper.py").write_text(HELPER.replace(text, other))
    assert fresh_process("import kernels", tmp_path) == "11 0"


def test_a_digest_follows_helpers_overloads_closures_and_options():
    def make(addend, option=True, constant=1.0):
        def stub(x):
            raise AssertionError

        @overload(stub)
        def _implementation(x):
            return lambda x: x + constant

        @jit(contract=option)
        def helper(x):
            return x + addend

        def kernel(x):
            return helper(x) + stub(x)

        return digest(kernel)

    assert make(1) == make(1)
    assert len({make(1), make(2), make(1, False), make(1, constant=2.0)}) == 4


def test_a_digest_refuses_what_it_cannot_look_into():
    cannot = object()

    def kernel(x):
        return x is cannot

    with pytest.raises(TypeError, match="the disk cache cannot tell when that changes"):
        digest(kernel)


def test_numba_compiles_nothing_except_through_this_module():
    """An `njit`, `cfunc` or `overload` of Numba's own would know nothing of these keys."""
    direct = re.compile(r"\bnumba\b.*\b(njit|jit|cfunc|vectorize|guvectorize|overload)\b")
    files = set(PACKAGE.rglob("*.py")) - {PACKAGE / "compiled" / "jit.py"}
    assert not [file for file in files if direct.search(_imports(file))]


def _imports(file: Path) -> str:
    lines = file.read_text().splitlines()
    return "\n".join(line for line in lines if re.match(r"\s*(from numba\b|import numba\b)", line))


def test_without_a_folder_for_the_cache_kernels_still_work(monkeypatch):
    def refuse(self, function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("loopless.compiled.jit._Cache.__init__", refuse)
    with pytest.warns(RuntimeWarning, match="Set NUMBA_CACHE_DIR"):

        @jit()
        def kernel(x):
            return x + 1

    assert kernel(1) == 2
