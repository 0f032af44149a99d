"""GAE by other libraries, each called as its users call it, in the layout it wants.

Changing the layout is not timed. Computing both advantages and returns is: where a peer gives
advantages only, adding the values is timed with it, and its note says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.processes import jax, jnp, peer, torch
from suites.returns.rollouts import TOLERANCE, Rollout, as_numpy

TIANSHOU_KERNEL, RLOX = "Tianshou, bare kernel", "rlox"
LAX_SCAN = "lax.scan by hand, JAX jit"


def _torchrl(rollout: Rollout, function: str) -> Call:
    estimate = getattr(peer("torchrl.objectives.value").functional, function)
    ended = rollout.ended
    arrays = rollout.values, rollout.next_values, rollout.rewards, ended, rollout.terminated
    tensors = [torch.from_numpy(np.ascontiguousarray(x.T)[..., None]) for x in arrays]
    return Call(
        lambda: estimate(rollout.gamma, rollout.lambda_, *tensors),
        lambda output: as_numpy(tuple(x[..., 0].numpy().T for x in output)),
    )


def _flat(x: np.ndarray) -> np.ndarray:
    """Flatten [T, B] as Tianshou and rlox take it: one environment after the other."""
    return np.ascontiguousarray(x.T).reshape(-1)


def _unflat(rollout: Rollout, output: tuple) -> tuple[np.ndarray, ...]:
    """Bring such arrays back to [T, B]."""
    return tuple(x.reshape(rollout.envs, rollout.steps).T for x in output)


def _tianshou_ends(rollout: Rollout) -> np.ndarray:
    """Return truncations with the last step among them: Tianshou must know where a window ends."""
    truncated = rollout.truncated.copy()
    truncated[-1] |= ~rollout.terminated[-1]
    return _flat(truncated)


def _tianshou(rollout: Rollout) -> Call:
    estimate = peer("tianshou.algorithm.algorithm_base").Algorithm.compute_episodic_return
    data = peer("tianshou.data")
    terminated, truncated = _flat(rollout.terminated), _tianshou_ends(rollout)
    rewards = _flat(rollout.rewards)
    nothing = np.zeros(len(rewards), np.int8)
    fields: dict[str, Any] = {"rew": rewards, "terminated": terminated, "truncated": truncated}
    fields |= {"obs": nothing, "act": nothing, "obs_next": nothing, "done": terminated | truncated}
    arguments = data.Batch(**fields), data.ReplayBuffer.from_data(**fields), np.arange(len(rewards))
    named = {"v_s": _flat(rollout.values), "v_s_": _flat(rollout.next_values)}
    named |= {"gamma": rollout.gamma, "gae_lambda": rollout.lambda_}
    return Call(
        lambda: estimate(*arguments, **named),
        lambda output: as_numpy(_unflat(rollout, output)[::-1]),
    )


def _tianshou_kernel(rollout: Rollout) -> Call:
    kernel = peer("tianshou.algorithm.algorithm_base")._gae
    values, rewards = _flat(rollout.values), _flat(rollout.rewards)
    successors = _flat(np.where(rollout.terminated, np.float32(0), rollout.next_values))
    ends = _flat(rollout.terminated) | _tianshou_ends(rollout)

    def run() -> tuple[np.ndarray, np.ndarray]:
        advantages = kernel(values, successors, rewards, ends, rollout.gamma, rollout.lambda_)
        return advantages, advantages + values

    return Call(run, lambda output: as_numpy(_unflat(rollout, output)))


def _rlox(rollout: Rollout) -> Call:
    estimate = peer("rlox").compute_gae_batched_f32
    arrays = rollout.folded_rewards(), rollout.values, rollout.ended.astype(np.float32)
    arguments = *map(_flat, arrays), rollout.next_values[-1].copy(), rollout.steps
    return Call(
        lambda: estimate(*arguments, rollout.gamma, rollout.lambda_),
        lambda output: as_numpy(_unflat(rollout, output)),
    )


def _rlox_by_env(rollout: Rollout) -> Call:
    estimate, ends = peer("rlox").compute_gae, rollout.ended
    arrays = [
        np.ascontiguousarray(x.T, np.float64)
        for x in (rollout.folded_rewards(), rollout.values, ends)
    ]
    envs = [*zip(*arrays, rollout.next_values[-1].tolist(), strict=True)]
    return Call(
        lambda: [estimate(*env, rollout.gamma, rollout.lambda_) for env in envs],
        lambda output: as_numpy(tuple(np.stack(x, 1) for x in zip(*output, strict=True))),
    )


def _stable_baselines(rollout: Rollout) -> Call:
    spaces = peer("gymnasium.spaces")
    buffer = peer("stable_baselines3.common.buffers").RolloutBuffer(
        rollout.steps, spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2), device="cpu",
        gae_lambda=rollout.lambda_, gamma=rollout.gamma, n_envs=rollout.envs,
    )  # fmt: skip
    buffer.rewards[:] = rollout.folded_rewards()
    buffer.values[:] = rollout.values
    buffer.episode_starts[1:] = rollout.ended[:-1]
    last_values, last_ended = torch.from_numpy(rollout.next_values[-1]), rollout.ended[-1]

    def run() -> tuple[np.ndarray, np.ndarray]:
        buffer.compute_returns_and_advantage(last_values, last_ended)
        return buffer.advantages, buffer.returns

    return Call(run, as_numpy)


def _rlax(rollout: Rollout) -> Call:
    estimate = peer("rlax").truncated_generalized_advantage_estimation
    estimate = jax.vmap(estimate, in_axes=(1, 1, None, 1), out_axes=1)

    @jax.jit
    def both(rewards, discounts, values):
        advantages = estimate(rewards, discounts, rollout.lambda_, values)
        return advantages, advantages + values[:-1]

    rewards = jnp.asarray(rollout.folded_rewards())
    discounts = jnp.asarray(np.where(rollout.ended, 0.0, rollout.gamma).astype(np.float32))
    values = jnp.asarray(np.concatenate([rollout.values, rollout.next_values[-1:]]))
    return Call(lambda: jax.block_until_ready(both(rewards, discounts, values)), as_numpy)


def _lax_scan(rollout: Rollout) -> Call:
    gamma, lambda_ = rollout.gamma, rollout.lambda_

    def step(carry, row):
        reward, value, next_value, terminated, truncated = row
        delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
        advantage = delta + gamma * lambda_ * jnp.where(terminated | truncated, 0.0, carry)
        return advantage, (advantage, advantage + value)

    @jax.jit
    def gae(*arrays):
        return jax.lax.scan(step, jnp.zeros_like(arrays[0][0]), arrays, reverse=True)[1]

    arrays = [jnp.asarray(x) for x in rollout.arrays]
    return Call(lambda: jax.block_until_ready(gae(*arrays)), as_numpy)


def _peer(
    name: str, library: str, prepare: Callable[..., Call], note: str, tolerance: float = TOLERANCE
) -> Contender:
    return Contender(name, library, "peer", prepare, tolerance, note)


PEERS = (
    _peer(
        "TorchRL, loop", "torchrl", partial(_torchrl, function="generalized_advantage_estimate"),
        "[B, T, 1]",
    ),
    _peer(
        "TorchRL, vec", "torchrl",
        partial(_torchrl, function="vec_generalized_advantage_estimate"), "[B, T, 1]",
        1e-4,  # it cuts the filter's tail below 1e-7
    ),
    _peer(
        "Tianshou", "tianshou", _tianshou,
        "Algorithm.compute_episodic_return on [B·T]; float64 out; window ends flagged",
    ),
    _peer(
        TIANSHOU_KERNEL, "tianshou", _tianshou_kernel,
        "_gae on [B·T], next values masked beforehand; the + V for returns is timed",
    ),
    _peer(
        RLOX, "rlox", _rlox,
        "compute_gae_batched_f32 on [B·T], which takes neither next values nor truncations: "
        "γ V(s') folded into the rewards at truncations beforehand",
    ),
    Contender(
        f"{RLOX}, a call an environment", "rlox", "peer", _rlox_by_env, TOLERANCE,
        "compute_gae in float64: its batched function hands the work to a pool of threads",
        largest=10_000,
    ),
    _peer(
        "Stable-Baselines3", "stable-baselines3", _stable_baselines,
        "RolloutBuffer; γ V(s') folded into the rewards at truncations beforehand",
    ),
    _peer(
        "rlax, JAX jit", "rlax", _rlax,
        "knows no V(s') other than the next row's: γ V(s') folded into the rewards at "
        "truncations beforehand; the + V for returns is timed",
    ),
    Contender(
        LAX_SCAN, "jax", "yardstick", _lax_scan, TOLERANCE, "the recipe in the scan's body"
    ),
)  # fmt: skip
