"""The walk over a block that sums each episode up, compiled. Its caller is `blocks.Tally`.

Imports Numba. Compared with a plain loop in `tests/envs/test_blocks.py`.
"""

from loopless.arrays.numba_jit import jit


@jit()
def count(
    rewards, terminated, truncated, valid, returns, lengths, places, out_returns, out_lengths
):
    """Add a block to the running `returns` and `lengths` [envs]; how many episodes ended in it.

    The k-th of them: its step and environment in `places` [2, k], and its totals.
    """
    ended = 0
    for t in range(rewards.shape[0]):
        for env in range(rewards.shape[1]):
            if not valid[t, env]:
                continue
            returns[env] += rewards[t, env]
            lengths[env] += 1
            if terminated[t, env] or truncated[t, env]:
                places[0, ended] = t
                places[1, ended] = env
                out_returns[ended] = returns[env]
                out_lengths[ended] = lengths[env]
                returns[env] = 0.0
                lengths[env] = 0
                ended += 1
    return ended
