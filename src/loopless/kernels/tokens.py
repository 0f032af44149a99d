"""Advantages of the tokens that a language model wrote. Loop twin: `reference.returns.token_gae`.

Built on the one scan like the estimators of `kernels.returns`, whose conventions hold here too.
"""

from collections import namedtuple

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.scan.recipe import Recipe


@as_numpy_on_cpu
def token_gae(rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0):
    """Return GAE over the tokens that the policy wrote, in rows that hold other tokens too.

    With gaps="skip" the tokens where `mask` is false (a prompt, a tool's answer, padding) are
    passed over: the result is that of plain GAE on the remaining tokens put side by side. With
    gaps="reset" each run of masked-in tokens is an episode of its own, as in packed rows. Beyond
    the last token the value is 0. Masked-out tokens may hold anything and come back 0. Arrays
    [B, T] of language models need time_axis=1. Returns (advantages, returns).

    Schulman et al. 2016, eq. 16. Loop twin: `reference.returns.token_gae`.
    """
    function = "token_gae"
    checks.choice(function, "gaps", gaps, ("skip", "reset"))
    arguments = checks.Arguments(function, "rewards", rewards)
    library = arguments.library
    dtype = arguments.floats({"rewards": rewards, "values": values})
    axis = arguments.time_axis(time_axis)
    mask = arguments.flag("mask", mask)
    numbers = arguments.number("gamma", gamma), arguments.number("lambda_", lambda_)
    if gaps == "reset":
        return scan.estimate(
            _TOKEN_RESET, library, dtype, axis, (rewards, values), (), numbers, mask
        )
    wide = library.wide(dtype)
    (following,) = scan.estimate(_FOLLOWING, library, wide, axis, (values,), (mask,), (1.0,))
    return scan.estimate(
        _TOKEN_SKIP, library, dtype, axis, (rewards, values, following), (mask,), numbers
    )


_TokenResetRow = namedtuple("_TokenResetRow", "rewards values gamma lambda_ values_ahead")


def _token_reset_coefficients(where, row, last):
    delta = row.rewards + row.gamma * where(last, 0, row.values_ahead) - row.values
    return where(last, 0, row.gamma * row.lambda_), delta


def _token_reset_readout(where, row, last, x, x_next):
    return x, x + row.values


_TOKEN_RESET = Recipe(
    _TokenResetRow, _token_reset_coefficients, _token_reset_readout, outputs=2, ahead=(1,)
)


_FollowingRow = namedtuple("_FollowingRow", "values mask one")


def _following_coefficients(where, row, last):
    return where(row.mask, 0, row.one), where(row.mask, row.values, 0)


def _following_readout(where, row, last, x, x_next):
    return (where(last, 0, x_next),)


# Finds the value of the next token that the policy wrote, however many others stand between.
_FOLLOWING = Recipe(
    _FollowingRow, _following_coefficients, _following_readout, outputs=1, reads_next=True
)


_TokenSkipRow = namedtuple("_TokenSkipRow", "rewards values following mask gamma lambda_")


def _token_skip_coefficients(where, row, last):
    delta = where(row.mask, row.rewards, 0) + row.gamma * row.following
    delta = delta - where(row.mask, row.values, 0)
    return where(row.mask, row.gamma * row.lambda_, 1), where(row.mask, delta, 0)


def _token_skip_readout(where, row, last, x, x_next):
    return where(row.mask, x, 0), where(row.mask, x + row.values, 0)


_TOKEN_SKIP = Recipe(_TokenSkipRow, _token_skip_coefficients, _token_skip_readout, outputs=2)
