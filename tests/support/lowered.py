"""Runs lowered graphs in tests: compiled quickly, and strict about dtypes."""

import jax
import numpy as np

from loopless.fused.lowering import lower

# The programs are tiny: most of the time would go into making them fast.
FAST_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}  # of unit-scale numbers; others are equal


def run(graph, arrays, *, key=None) -> list:
    """Return the results of a graph; a promotion that the table does not ask for is an error."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        keys = {} if key is None else {"key": jax.random.key(key)}
        arrays = [np.asarray(array) for array in arrays]
        program = jax.jit(lower(graph, random=key is not None)).lower(*arrays, **keys)
        return program.compile(FAST_COMPILE)(*arrays, **keys)


def check_equal(results, expected) -> None:
    """Compare arrays with tensors, dtypes included. None stands for an unused gradient."""
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        if wanted is None:
            assert result is None
            continue
        wanted = wanted.detach().numpy()
        assert result.dtype == wanted.dtype
        tolerance = TOLERANCES.get(wanted.dtype.name, 0)
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)
