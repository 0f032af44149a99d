"""AvataRL's loss where values are in plain sight: surveyed rows handed to the compiled `judge`.

For NumPy arrays and for PyTorch tensors of plain eager execution on the CPU, whose memory NumPy
shares. Imports `arrays`, and `avatarl_rows` on the first call. Tests:
`tests/kernels/test_avatarl_*.py`, whose roads "numpy" and "torch" come through here.
"""

from functools import partial
from typing import Any

import numpy as np

from loopless.arrays import vocabulary
from loopless.arrays.library import NUMPY, Library
from loopless.arrays.numpy_fused import flat, flat_or_number
from loopless.arrays.vocabulary import Slope, Survey
from loopless.kernels.avatarl_positions import STATS
from loopless.kernels.avatarl_targets import Numbers

_BOOL, _INTEGER = np.dtype(np.bool_), np.dtype(np.int64)


def loss(
    library: Library, variant: str, rate, beta, floor: float, arrays, numbers: Numbers, surveys
) -> tuple[Any, dict[str, Any], Slope] | None:
    """The mean loss, the statistics and the slope; None where nothing may be looked at.

    `arrays` are student, critic, gold and what is counted, `surveys` those of student and critic.
    """
    seen = vocabulary.host(library, *arrays, *numbers, *surveys[0], *surveys[1])
    if seen is None:
        return None
    surveys = Survey._make(seen[9:14]), Survey._make(seen[14:])
    means, slope = _loss(variant, rate, beta, floor, seen[:4], Numbers._make(seen[4:9]), surveys)
    back = partial(vocabulary.back, library)
    value, *stats = map(back, means)
    slope = Slope._make(map(back, slope))
    return value, dict(zip(STATS, stats, strict=True)), slope


def _loss(variant, rate, beta, floor, arrays, numbers: Numbers, surveys):
    from loopless.kernels import avatarl_rows as rows

    z, critic, gold, counted = arrays
    of_student, of_critic = surveys
    shape, count, k = gold.shape, gold.size, of_student.top.shape[-1]
    width, dtype = 2 * k + 1, of_student.peak.dtype
    wide = np.promote_types(dtype, of_critic.peak.dtype)
    actions, present = np.empty((count, width), np.int64), np.empty((count, width), bool)
    tops = of_student.top.reshape(count, k), of_critic.top.reshape(count, k)
    rows.choose(flat(gold, _INTEGER), *tops, actions, present)
    tokens = actions.reshape(*shape, width)
    positions = max(count if counted is None else int(counted.sum()), 1)
    less, alphas = np.empty((count, width), wide), np.empty(count, wide)
    sheet = np.empty((len(STATS) + 1, count), wide)

    def known(logits, survey):
        picked = vocabulary.picked(NUMPY, logits, tokens, wide).reshape(count, width)
        return picked, *map(partial(flat, dtype=wide), survey[1:])

    confident = numbers.critic_weight is None
    weights = (0.0, 0.0)
    if not confident:
        weights = map(partial(_by_position, shape=shape, wide=wide), numbers[:2])
    rows.judge(
        rows.VARIANTS[variant],
        confident,
        present,
        None if counted is None else flat(counted, _BOOL),
        known(z, of_student),
        known(critic, of_critic),
        (*weights, *map(float, numbers[2:])),
        wide.type(rate),
        float(beta),
        1.0 / positions,
        floor,
        less,
        alphas,
        sheet,
    )
    bonus = beta / positions if variant in ("fixed", "original") else 0.0
    slope = Slope(
        of_student.peak,
        of_student.log_total,
        alphas.astype(dtype, copy=False).reshape(shape),
        np.full(shape, bonus, dtype),
        tokens,
        less.astype(dtype, copy=False).reshape(tokens.shape),
        counted,
        rate,
    )
    return (sheet.sum(-1, dtype=np.float64) / positions).astype(wide), slope


def _by_position(x, shape, wide):
    """A weight, typed as a number or as one for each position."""
    return flat_or_number(x if np.ndim(x) else float(x), shape, wide)
