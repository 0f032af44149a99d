"""`numba_product` as XLA calls it: a or aᵀ, times b, of which leading axes count the products.

Imports `jax_native` and Numba's part; imported on the first call only, by `jax_product`. Tests:
`tests/arrays/test_jax_product.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools

import numpy as np

from loopless.arrays import jax_native as native
from loopless.arrays.numba_product import COLUMNS, ROWS, product

NAME = "loopless_product"


def fits(rows: int, columns: int) -> bool:
    """Whether a result of this shape can be had here."""
    return rows >= ROWS and columns >= COLUMNS and _is_here()


@functools.cache
def _is_here() -> bool:
    return native.register(NAME, _handler)


def _handler(frame):
    if not native.asked(frame):
        turned = native.integers(frame, 1)[0]
        a = native.matrices(frame, native.ARGUMENTS, 0, np.float32)
        b = native.matrices(frame, native.ARGUMENTS, 1, np.float32)
        out = native.matrices(frame, native.RESULTS, 0, np.float32)
        width = a.shape[2]
        row, column = (1, width) if turned else (width, 1)
        for i in range(out.shape[0]):
            product(a[i].ravel(), row, column, b[i], out[i])
    return 0
