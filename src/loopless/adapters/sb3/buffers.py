"""Stable-Baselines3's buffers, with cheaper adding, many batches at once, GAE without a loop.

The arrays are those of Stable-Baselines3, under its names and in its layout, so that whatever else
reads them goes on working; and a uniform buffer draws what Stable-Baselines3 would have drawn from
NumPy's generator. Pickled buffers are Stable-Baselines3's own and open without loopless.
"""

import copyreg
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common import buffers as sb3
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

import loopless as ll

TIMEOUT = "TimeLimit.truncated"


class ReplayBuffer(sb3.ReplayBuffer):
    """Stable-Baselines3's replay buffer: the same arrays, the same draws, less time.

    For `replay_buffer_class=` of any of its off-policy algorithms, or inside `adapters.sb3.DQN`.
    """

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Append one transition of each environment, in place of the oldest."""
        pos = self.pos
        row = self.observations[pos]
        if np.shape(obs) != row.shape:  # discrete observations come without their last axis
            obs, next_obs = np.reshape(obs, row.shape), np.reshape(next_obs, row.shape)
        row[...] = obs
        if self.optimize_memory_usage:
            self.observations[(pos + 1) % self.buffer_size] = next_obs
        else:
            self.next_observations[pos] = next_obs
        self.actions[pos] = np.reshape(action, (self.n_envs, self.action_dim))
        self.rewards[pos] = reward
        self.dones[pos] = done
        if self.handle_timeout_termination:
            self.timeouts[pos] = [info.get(TIMEOUT, False) for info in infos]
        pos += 1
        self.full = self.full or pos == self.buffer_size
        self.pos = 0 if pos == self.buffer_size else pos

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Return one batch as tensors."""
        batch = self._rows(self._draw(1, batch_size)[0], env)
        return ReplayBufferSamples(**{name: self.to_torch(x, False) for name, x in batch.items()})

    def sample_many(
        self, batches: int, batch_size: int, env: VecNormalize | None = None
    ) -> dict[str, np.ndarray]:
        """Return the batches that as many calls of `sample` would draw, as arrays [K, B, …]."""
        return self._rows(self._draw(batches, batch_size), env)

    def _draw(self, batches: int, batch_size: int) -> np.ndarray:
        """Return rows [K, B] of the flattened arrays, drawn as Stable-Baselines3 draws them."""
        if self.n_envs == 1:
            return self._draw_steps((batches, batch_size))
        rows = np.empty((batches, batch_size), np.int64)
        for batch in rows:
            batch[:] = self._draw_steps(batch_size) * self.n_envs
            batch += np.random.randint(0, high=self.n_envs, size=batch_size)
        return rows

    def _draw_steps(self, size: Any) -> np.ndarray:
        # NumPy's global generator is the one that Stable-Baselines3 seeds and draws from.
        if self.optimize_memory_usage and self.full:
            steps = np.random.randint(1, self.buffer_size, size=size)
            return (steps + self.pos) % self.buffer_size
        return np.random.randint(0, self.size(), size=size)

    def _rows(self, rows: np.ndarray, env: VecNormalize | None) -> dict[str, np.ndarray]:
        """Return the transitions at rows [...], as Stable-Baselines3 gives them."""
        flat = rows.reshape(-1)
        total = self.buffer_size * self.n_envs

        def take(array: np.ndarray, at: np.ndarray = flat) -> np.ndarray:
            return array.reshape(total, *array.shape[2:]).take(at, axis=0)

        obs = take(self.observations)
        if self.optimize_memory_usage:
            next_obs = take(self.observations, (flat + self.n_envs) % total)
        else:
            next_obs = take(self.next_observations)
        dones = take(self.dones) * (1 - take(self.timeouts))
        batch = {
            "observations": self._normalize_obs(obs, env),
            "actions": take(self.actions),
            "next_observations": self._normalize_obs(next_obs, env),
            "dones": dones[:, None],
            "rewards": self._normalize_reward(take(self.rewards)[:, None], env),
        }
        return {name: np.reshape(x, (*rows.shape, *x.shape[1:])) for name, x in batch.items()}

    def __reduce__(self) -> Any:
        return _as_plain(self, sb3.ReplayBuffer)


class PrioritizedReplayBuffer(ReplayBuffer):
    """Draws transitions with P(i) = p_i^α / Σ p^α and weighs them (Schaul et al. 2016).

        DQN("MlpPolicy", env, replay_buffer_class=PrioritizedReplayBuffer,
            replay_buffer_kwargs={"alpha": 0.6, "beta": 0.4})

    `beta` goes to `final_beta` as training goes on. Works in `adapters.sb3.DQN` alone:
    Stable-Baselines3's algorithms would neither weigh the loss nor update priorities. The batches
    of one `train` are drawn at once, and their priorities are updated together after it.
    """

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        epsilon: float = 1e-6,
        learner: Any = None,
        **options: Any,
    ) -> None:
        if learner is None:
            raise TypeError(
                "PrioritizedReplayBuffer works with loopless.adapters.sb3.DQN alone: other "
                "algorithms would ignore its weights and never update its priorities. Import DQN "
                "from loopless.adapters.sb3, or use loopless.PrioritizedReplayBuffer in code of "
                "your own."
            )
        super().__init__(*args, **options)
        if self.optimize_memory_usage:
            raise NotImplementedError(
                "PrioritizedReplayBuffer does not support optimize_memory_usage=True."
            )
        self.beta, self.final_beta, self.epsilon = beta, final_beta, epsilon
        # Only the priorities are kept in it; the transitions are in the arrays as ever.
        seed = int(np.random.randint(2**31))
        total = self.buffer_size * self.n_envs
        self.priorities = ll.PrioritizedReplayBuffer(
            total, {"row": ((), np.int64)}, alpha=alpha, seed=seed
        )

    def add(self, *args: Any, **options: Any) -> None:
        """Append one transition of each environment, with the largest priority so far."""
        first = self.pos * self.n_envs
        super().add(*args, **options)
        self.priorities.add(row=np.arange(first, first + self.n_envs))

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()
        old = self.priorities
        self.priorities = ll.PrioritizedReplayBuffer(
            old.capacity, {"row": ((), np.int64)}, alpha=old.alpha, seed=0
        )

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Refuse: a batch without its weights would be wrong."""
        raise TypeError("PrioritizedReplayBuffer: call sample_many, whose batches have weights")

    def sample_many(
        self,
        batches: int,
        batch_size: int,
        env: VecNormalize | None = None,
        progress_remaining: float = 1.0,
    ) -> dict[str, np.ndarray]:
        """Return batches as arrays [K, B, …], with "weights" and "indices"."""
        beta = self.final_beta + (self.beta - self.final_beta) * progress_remaining
        drawn = self.priorities.sample(batch_size, batches, beta=beta)
        batch = self._rows(drawn["indices"], env)
        return batch | {"weights": drawn["weights"][..., None], "indices": drawn["indices"]}

    def update_priorities(self, indices: np.ndarray, td_errors: np.ndarray) -> None:
        """Set priorities from the TD errors of the transitions at `indices`."""
        errors = np.abs(td_errors, dtype=np.float64).reshape(-1)
        self.priorities.update_priorities(indices.reshape(-1), errors + self.epsilon)


class RolloutBuffer(sb3.RolloutBuffer):
    """Stable-Baselines3's rollout buffer, whose advantages need no loop over time.

    For `rollout_buffer_class=` of its on-policy algorithms, or inside `adapters.sb3.PPO`.
    """

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: torch.Tensor,
        log_prob: torch.Tensor,
    ) -> None:
        """Append one step of each environment."""
        pos = self.pos
        row = self.observations[pos]
        row[...] = obs if np.shape(obs) == row.shape else np.reshape(obs, row.shape)
        self.actions[pos] = action.reshape(self.n_envs, self.action_dim)
        self.rewards[pos] = reward
        self.episode_starts[pos] = episode_start
        self.values[pos] = value.detach().cpu().numpy().reshape(-1)
        self.log_probs[pos] = log_prob.detach().cpu().numpy().reshape(-1)
        self.pos = pos + 1
        self.full = self.pos == self.buffer_size

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Fill `advantages` and `returns`."""
        estimate(self, last_values, dones)

    def __reduce__(self) -> Any:
        return _as_plain(self, sb3.RolloutBuffer)


class DictRolloutBuffer(sb3.DictRolloutBuffer):
    """Stable-Baselines3's rollout buffer of Dict observations, with advantages as above."""

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
        """Fill `advantages` and `returns`."""
        estimate(self, last_values, dones)

    def __reduce__(self) -> Any:
        return _as_plain(self, sb3.DictRolloutBuffer)


def estimate(buffer: Any, last_values: torch.Tensor, dones: np.ndarray) -> None:
    """Fill the advantages and returns of a rollout buffer.

    Stable-Baselines3 has already added γ V of the last observation to the reward of a truncated
    step, so that every end counts as terminated here.
    """
    last = last_values.detach().cpu().numpy().reshape(1, -1)
    next_values = np.concatenate([buffer.values[1:], last])
    ends = np.concatenate([buffer.episode_starts[1:], np.reshape(dones, (1, -1))]) != 0
    advantages, returns = ll.gae(
        buffer.rewards,
        buffer.values,
        next_values,
        ends,
        np.zeros_like(ends),
        gamma=buffer.gamma,
        lambda_=buffer.gae_lambda,
    )
    buffer.advantages, buffer.returns = advantages, returns


def flatten(buffer: Any) -> None:
    """Put environments and steps of a full rollout on one axis, as the first `get` does."""
    if buffer.generator_ready:
        return
    swap, obs = buffer.swap_and_flatten, buffer.observations
    if isinstance(obs, dict):
        buffer.observations = {name: swap(array) for name, array in obs.items()}
    else:
        buffer.observations = swap(obs)
    for name in ("actions", "values", "log_probs", "advantages", "returns"):
        setattr(buffer, name, swap(getattr(buffer, name)))
    buffer.generator_ready = True


def adopt(buffer: Any) -> Any:
    """Return a buffer of Stable-Baselines3 as one of ours, with the same arrays.

    Other buffers, subclasses included, are returned as they are.
    """
    kinds: dict[type, Callable] = {
        sb3.ReplayBuffer: ReplayBuffer,
        sb3.RolloutBuffer: RolloutBuffer,
        sb3.DictRolloutBuffer: DictRolloutBuffer,
    }
    buffer.__class__ = kinds.get(type(buffer), type(buffer))
    return buffer


def _as_plain(buffer: Any, kind: type) -> tuple:
    """Return what `__reduce__` must: a buffer of Stable-Baselines3, which needs no loopless."""
    return copyreg._reconstructor, (kind, object, None), buffer.__dict__  # type: ignore[attr-defined]
