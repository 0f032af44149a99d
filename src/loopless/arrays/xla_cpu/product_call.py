"""`compiled.product` as XLA calls it: a or aᵀ, times b or bᵀ; leading axes count the products.

Imported on the first call only, by `product.py`, for it needs Numba.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools

import numpy as np

from loopless.arrays.xla_cpu import frame
from loopless.compiled.product import COLUMNS, LANES, ROWS, product, product_with_transposed

NAME = "loopless_product"


def fits(rows: int, depth: int, columns: int, transposed: tuple[bool, bool]) -> bool:
    """Return whether the kernel can compute a product of these sizes."""
    return (
        rows >= ROWS
        and columns >= COLUMNS
        and (depth >= LANES or not transposed[1])
        and _is_available()
    )


@functools.cache
def _is_available() -> bool:
    return frame.register(NAME, _handler)


def _handler(call):
    if not frame.is_question(call):
        transposed_a, transposed_b = frame.integers(call, 2)
        a = frame.matrices(call, frame.ARGUMENTS, 0, np.float32)
        b = frame.matrices(call, frame.ARGUMENTS, 1, np.float32)
        out = frame.matrices(call, frame.RESULTS, 0, np.float32)
        width = a.shape[2]
        row, column = (1, width) if transposed_a else (width, 1)
        for i in range(out.shape[0]):
            if transposed_b:
                product_with_transposed(a[i].ravel(), row, column, b[i], out[i])
            else:
                product(a[i].ravel(), row, column, b[i], out[i])
    return 0
