"""`numba_product` as XLA calls it: a or aᵀ, times b or bᵀ; leading axes count the products.

Imports `jax_native` and Numba's part; imported on the first call only, by `jax_product`. Tests:
`tests/arrays/test_jax_product.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools

import numpy as np

from loopless.arrays.xla_cpu import frame as native
from loopless.compiled.product import COLUMNS, LANES, ROWS, product, product_with_turned

NAME = "loopless_product"


def fits(rows: int, depth: int, columns: int, turned: tuple[bool, bool]) -> bool:
    """Whether a product of these sizes can be had here."""
    return rows >= ROWS and columns >= COLUMNS and (depth >= LANES or not turned[1]) and _is_here()


@functools.cache
def _is_here() -> bool:
    return native.register(NAME, _handler)


def _handler(frame):
    if not native.is_question(frame):
        turned_a, turned_b = native.integers(frame, 2)
        a = native.matrices(frame, native.ARGUMENTS, 0, np.float32)
        b = native.matrices(frame, native.ARGUMENTS, 1, np.float32)
        out = native.matrices(frame, native.RESULTS, 0, np.float32)
        width = a.shape[2]
        row, column = (1, width) if turned_a else (width, 1)
        for i in range(out.shape[0]):
            if turned_b:
                product_with_turned(a[i].ravel(), row, column, b[i], out[i])
            else:
                product(a[i].ravel(), row, column, b[i], out[i])
    return 0
