"""The walks over a block after its last step, compiled: successors, and episodes summed up.

Their callers are `blocks.Block` and `blocks.Tally`. Imports Numba. Compared with plain loops in
`tests/envs/test_blocks.py`.
"""

from loopless.compiled.jit import jit


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


@jit()
def finish(all_obs, next_obs, exact_reward, reward, terminated, truncated, final_obs):
    """Fill `next_obs` [T, N, D] from `all_obs` [T + 1, N, D], and `reward`; is all of it finite?

    If `final_obs`, rows that ended keep their successors.
    """
    finite = True
    steps, envs, width = next_obs.shape
    for t in range(steps):
        for env in range(envs):
            reward[t, env] = exact_reward[t, env]
            finite &= reward[t, env] - reward[t, env] == 0  # neither NaN nor infinite
            ended = terminated[t, env] or truncated[t, env]
            following, successor = all_obs[t + 1, env], next_obs[t, env]
            if not (final_obs and ended):
                for i in range(width):
                    successor[i] = following[i]
            for i in range(width):
                finite &= following[i] - following[i] == 0
                finite &= successor[i] - successor[i] == 0
    return finite
