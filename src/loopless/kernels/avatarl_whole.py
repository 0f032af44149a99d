"""AvataRL from logits to their gradient in one call on the CPU, compiled by Numba.

A tile of positions at a time where the vocabulary is short, else row by row: each row is then read
from memory once, and its gradient written while it is in the cache. Imports `arrays` and Numba;
imported on the first call only, by `avatarl_host` and `avatarl_jax`. Loop twin:
`reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np

from loopless.arrays.numba_jit import jit
from loopless.arrays.numba_vocabulary import slopes, survey
from loopless.kernels.avatarl_positions import FLOOR
from loopless.kernels.avatarl_rows import FIXED, ORIGINAL, choose, judge
from loopless.kernels.avatarl_tiles import tiles

SHORT, MANY = 512, 64  # tokens at most and positions at least, for which tiles are faster


@jit()
def whole(variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient):
    """Writes each position's loss and statistics, and the gradient of what they share in a mean.

    `student` and `critic` are flat memory and where in it each row of `size` logits starts, and
    `numbers` [N, 7] the weights of reality and critic, smoothing, scale, clamp, bonus β, and the
    position's share. The sheet is [N, 7], and the gradient [N, V], or [N, 0] if nobody asks. Rows
    that are not counted are 0, and NaN those that are no distribution or whose gold is no token.
    Returns the first counted rows of student and critic that are no distribution, or −1.
    """
    (memory, starts), (other_memory, other_starts) = student, critic
    if size <= SHORT and starts.size >= MANY:
        return tiles(
            variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient
        )
    dtype, width = memory.dtype, 2 * k + 1
    top, other_top = np.empty((1, k), np.int64), np.empty((1, k), np.int64)
    tokens, present = np.empty((1, width), np.int64), np.empty((1, width), np.bool_)
    of_student, of_critic = np.empty((4, 1), dtype), np.empty((4, 1), dtype)
    z, c = np.empty((1, width), dtype), np.empty((1, width), dtype)
    less, lines = np.empty((1, width), dtype), np.empty((7, 1), dtype)
    alphas, betas, token = np.empty(1, dtype), np.empty(1, dtype), np.empty(1, np.int64)
    bonused, floor = variant in (FIXED, ORIGINAL), FLOOR if variant == ORIGINAL else 0.0
    one, none, floor = dtype.type(1), dtype.type(0), dtype.type(floor)
    wrong, other_wrong = -1, -1
    for i in range(starts.size):
        if not counted[i]:
            sheet[i] = 0
            gradient[i] = 0
            continue
        start, other_start = starts[i : i + 1], other_starts[i : i + 1]
        beta, share = float(numbers[i, 5]), float(numbers[i, 6])
        rate = one if bonused else dtype.type(1.0 / (1.0 + beta))
        p, t, h, m = of_student[0], of_student[1], of_student[2], of_student[3]
        bad = survey(memory, start, size, rate, floor, None, top, p, t, h, m) == 0
        if bad and wrong < 0:
            wrong = i
        p, t, h, m = of_critic[0], of_critic[1], of_critic[2], of_critic[3]
        bad_too = (
            survey(other_memory, other_start, size, one, none, None, other_top, p, t, h, m) == 0
        )
        if bad_too and other_wrong < 0:
            other_wrong = i
        if bad or bad_too or gold[i] < 0 or gold[i] >= size:
            sheet[i] = np.nan
            gradient[i] = np.nan
            continue
        token[0] = gold[i]
        choose(token, top, other_top, tokens, present)
        for j in range(width):
            z[0, j], c[0, j] = (
                memory[start[0] + tokens[0, j]],
                other_memory[other_start[0] + tokens[0, j]],
            )
        weights = float(numbers[i, 0]), float(numbers[i, 1])
        method = float(numbers[i, 2]), float(numbers[i, 3]), float(numbers[i, 4])
        judge(
            variant, confident, present, None,
            (z, of_student[0], of_student[1], of_student[2], of_student[3]),
            (c, of_critic[0], of_critic[1], of_critic[2], of_critic[3]),
            (*weights, *method), rate, beta, share, floor, less, alphas, lines,
        )  # fmt: skip
        for j in range(7):
            sheet[i, j] = lines[j, 0]
        if gradient.size:
            betas[0] = beta * share if bonused else 0.0
            slopes(
                memory, start, size, rate, floor, None, of_student[0], of_student[1], alphas, betas,
                tokens, less, gradient[i : i + 1],
            )  # fmt: skip
    return wrong, other_wrong
