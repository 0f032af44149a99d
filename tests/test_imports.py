"""What an import costs, and what it must not load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "loopless"


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["torch", "jax", "numba", "numpy"])
def test_import_loads_neither_a_framework_nor_a_compiler(module):
    assert python(f"import sys, loopless; print({module!r} in sys.modules)") == "False"


def test_numpy_kernels_load_no_framework():
    code = """
import sys, numpy as np, loopless as ll
x = np.zeros((3, 2)); f = np.zeros((3, 2), bool)
ll.gae(x, x, x, f, f, gamma=0.9, lambda_=0.9)
ll.n_step_returns(x, x, f, f, gamma=0.9, n=2)
ll.normalize(x)
print([m for m in ("torch", "jax", "triton") if m in sys.modules])
"""
    assert python(code) == "[]"


@pytest.mark.slow
def test_an_eager_call_on_tensors_loads_no_compiler_of_pytorch():
    code = """
import sys, torch, loopless as ll
x = torch.zeros(3, 2, requires_grad=True); f = torch.zeros(3, 2, dtype=torch.bool)
ll.gae(x, x, x, f, f, gamma=0.9, lambda_=0.9)[0].sum().backward()
print("torch._dynamo" in sys.modules)
"""
    assert python(code) == "False"


@pytest.mark.slow
def test_second_process_compiles_nothing(tmp_path):
    code = """
import numpy as np, loopless as ll
from loopless.compiled import scan as compiled_scan
from loopless.arrays.scan import numpy as numpy_scan
from loopless.kernels import returns
x = np.zeros((3, 5)); f = np.zeros((3, 5), bool)
ll.gae(x, x, x, f, f, gamma=0.9, lambda_=0.9)
ll.affine_scan(x, x)
stats = [numpy_scan.kernel(returns._GAE, 5).stats, compiled_scan.affine.stats]
counts = [(s.cache_misses, s.cache_hits) for s in stats]
print(*[sum(sum(c.values()) for c in kind) for kind in zip(*counts)])
"""
    first = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    second = python(code, NUMBA_CACHE_DIR=str(tmp_path))
    assert first == "2 0"
    assert second == "0 2"


def test_every_public_name_exists_and_has_a_docstring():
    import loopless

    for name in loopless.__all__:
        assert getattr(loopless, name).__doc__, name
    assert set(loopless.__all__) <= set(dir(loopless))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = loopless.nonsense


def test_every_public_name_is_in_the_readme():
    import loopless

    readme = (SOURCE.parent.parent / "README.md").read_text()
    assert not [name for name in loopless.__all__ if f"`{name}`" not in readme]


def test_pickle_is_imported_nowhere():
    for file in SOURCE.rglob("*.py"):
        words = file.read_text().replace(".", " ").split()
        assert not {"pickle", "cloudpickle", "joblib"} & set(words), file
