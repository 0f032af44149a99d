"""AvataRL's loss where values are in plain sight: memory handed to the compiled `avatarl_whole`.

For NumPy arrays and for PyTorch tensors of plain eager execution on the CPU, whose memory NumPy
shares. Imports `arrays`, and Numba's part on the first call. Tests:
`tests/kernels/test_avatarl_*.py`, whose roads "numpy" and "torch" come through here.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.arrays import logits as vocabulary
from loopless.arrays.dispatch import empty, flat
from loopless.arrays.library import NUMPY, Library
from loopless.arrays.logits import numpy as numpy_vocabulary
from loopless.kernels.avatarl.arguments import Refusals
from loopless.kernels.avatarl.positions import STATS
from loopless.kernels.avatarl.rewards import Numbers

_BOOL, _INTEGER = np.dtype(np.bool_), np.dtype(np.int32)


def loss(
    library: Library,
    refusals: Refusals,
    variant: str,
    k: int,
    student,
    arrays,
    numbers: Numbers,
    beta,
) -> tuple[Any, dict[str, Any]] | None:
    """The mean loss with its gradient by `student`, and the statistics.

    None where nothing may be looked at. `arrays` are logits of student and critic, gold, counted.
    """
    seen = vocabulary.host(library, *arrays, *numbers)
    if seen is None:
        return None
    z, critic, gold, counted = seen[:4]
    shape = gold.shape
    wide = np.promote_types(NUMPY.wide(z.dtype), NUMPY.wide(critic.dtype))
    told = np.ones(gold.size, bool) if counted is None else flat(counted, _BOOL)
    positions = max(int(told.sum()), 1)
    table = _table(Numbers._make(seen[4:]), beta, 1.0 / positions, shape, wide)
    sheet = np.empty((gold.size, len(STATS) + 1), wide)
    wanted = vocabulary.is_wanted(library, student)
    out = empty((gold.size, z.shape[-1] if wanted else 0), z.dtype)
    fields = flat(gold, _INTEGER), told, table, sheet
    kernel = _kernel(gold.size, variant, numbers.critic_weight is None, k, z.shape[-1])
    wrong = numpy_vocabulary.both(kernel, z, critic, fields, out, wide)
    if max(wrong) >= 0:
        side = 0 if wrong[0] >= 0 else 1
        raise (refusals.student, refusals.critic)[side](np.unravel_index(wrong[side], shape))
    means = (sheet.sum(0, dtype=np.float64) / positions).astype(wide)
    value, *stats = map(partial(vocabulary.back, library), means)
    if wanted:
        gradient = vocabulary.back(library, out.reshape(z.shape))
        value = vocabulary.written(value, student, gradient)
    return value, dict(zip(STATS, stats, strict=True))


def _kernel(count: int, variant: str, confident: bool, k: int, size: int) -> Callable:
    from loopless.kernels.avatarl.rows import VARIANTS
    from loopless.kernels.avatarl.whole import whole

    return partial(whole(size, count), VARIANTS[variant], confident, k, size)


def _table(numbers: Numbers, beta, share: float, shape, wide) -> np.ndarray:
    """What is told of each position, [N, 7]; the weights are 0 where confidence sets them."""
    fields = *numbers, beta, share
    fields = [0.0 if x is None else x for x in fields]
    table = np.empty((math.prod(shape), len(fields)), wide)
    if max(map(np.ndim, fields)) == 0:
        table[:] = fields
    else:
        columns = [np.broadcast_to(x, shape) for x in fields]
        table[:] = np.stack(columns, -1).reshape(table.shape)
    return table
