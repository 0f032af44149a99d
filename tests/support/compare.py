"""Compare numbers with tolerances that follow from their dtype and size."""

import numpy as np

# float64: relative 1e-12; float32: 1e-5 on unit-scale data, as in the house style.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}


def assert_close(actual, expected, dtype: str = "float64", what: str = "") -> None:
    """Assert equality up to `dtype`'s tolerance, relative to the largest finite expected number."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(
        actual, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * scale, err_msg=what
    )


def assert_all_close(actual, expected, dtype: str = "float64", what: str = "") -> None:
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        assert_close(x, y, dtype, what)
