"""AvataRL from logits to their gradient in one call on the CPU: which compiled kernel does it.

Imports Numba's parts, of which a call compiles the one that it needs; imported on the first call
only, by `avatarl_host` and `avatarl_jax`. Loop twin: `reference.avatarl`. Tests:
`tests/kernels/test_avatarl_*.py`.
"""

from collections.abc import Callable

from loopless.kernels.avatarl.rows import rows
from loopless.kernels.avatarl.tiles import tiles

SHORT, MANY = 512, 64  # tokens at most and positions at least, for which tiles are faster


def whole(size: int, count: int) -> Callable:
    """The kernel for so many tokens and positions, to be called with

    variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient.

    It writes each position's loss and statistics, and the gradient of what they share in a mean.
    `student` and `critic` are flat memory and where in it each row of `size` logits starts, and
    `numbers` [N, 7] the weights of reality and critic, smoothing, scale, clamp, bonus β, and the
    position's share. The sheet is [N, 7], and the gradient [N, V], or [N, 0] if nobody asks. Rows
    that are not counted are 0, and NaN those that are no distribution or whose gold is no token.
    Returns the first counted rows of student and critic that are no distribution, or −1.
    """
    return tiles if size <= SHORT and count >= MANY else rows
