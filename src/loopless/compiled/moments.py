"""Mean and spread of an array in one pass, compiled by Numba. Imported on the first call only."""

import numpy as np

from loopless.compiled.jit import jit


@jit(reassociate=True)
def normalize(x, valid, min_std, out):
    """out = (x − mean)/max(std, min_std) over valid entries, 0 elsewhere; all arrays flat.

    Sums are of differences from the first valid entry, in float64: equal entries give exactly 0,
    and a large common offset costs no digits.
    """
    shift = 0.0
    for i in range(x.size):
        if valid is None or valid[i]:
            shift = float(x[i])
            break
    count = 0
    total = 0.0
    squares = 0.0
    for i in range(x.size):
        if valid is None or valid[i]:
            difference = float(x[i]) - shift
            count += 1
            total += difference
            squares += difference * difference
    mean = total / max(count, 1)
    variance = max(squares / max(count, 1) - mean * mean, 0.0)
    scale = 1.0 / max(np.sqrt(variance), min_std)
    for i in range(x.size):
        kept = valid is None or valid[i]
        out[i] = ((float(x[i]) - shift) - mean) * scale if kept else 0.0
