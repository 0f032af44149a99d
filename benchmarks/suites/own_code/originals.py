"""The founding code bases' own classes and functions, and ours put in their place.

Each original is written from a description of the published code, in its layout, and as fast as it
is there; no code was copied. What stands in its place includes every conversion that the owner of
the code would have to write. `PATCHES` replace one function of a program in examples/adopt.
`in_place.py` has the cases, checks and contenders.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import numpy as np

import loopless as ll
from suites.processes import torch

LOG = logging.getLogger(__name__)
GAMMA, LAMBDA, DISCOUNT = 0.99, 0.95, 0.9


# --- esper-lite: advantages of a ragged rollout --------------------------------------------------


class RolloutBuffer:
    """Keeps tensors [envs, steps]; environment e has filled its first `step_counts[e]` columns."""

    def __init__(self, arrays: dict[str, Any], step_counts: list[int], stale: float) -> None:
        self.rewards, self.values = arrays["rewards"], arrays["values"]
        self.dones, self.truncated = arrays["dones"], arrays["truncated"]
        self.bootstrap_values, self.step_counts = arrays["bootstrap_values"], step_counts
        self.advantages = torch.full_like(self.rewards, stale)
        self.returns, self.td_errors = self.advantages.clone(), self.advantages.clone()

    def compute_advantages_and_returns(self) -> None:
        """Loop over environments, and backwards over the steps of each."""
        for env, count in enumerate(self.step_counts):
            if not count:
                continue
            rewards, values = self.rewards[env, :count], self.values[env, :count]
            truncated, bootstrap = self.truncated[env, count - 1], self.bootstrap_values[env]
            goes_on = 1.0 - (self.dones[env, :count] & ~self.truncated[env, :count]).float()
            discounts, traces = GAMMA * goes_on, GAMMA * LAMBDA * goes_on
            carry = torch.zeros(())
            following = torch.where(truncated, bootstrap[count - 1], carry)
            advantages, td_errors = [], []
            for t in reversed(range(count)):
                value = values[t]
                delta = rewards[t] + discounts[t] * following - value
                carry = delta + traces[t] * carry
                following = value
                advantages.append(carry)
                td_errors.append(delta)
            self.advantages[env, :count] = torch.stack(advantages[::-1])
            self.td_errors[env, :count] = torch.stack(td_errors[::-1])
            self.returns[env, :count] = self.advantages[env, :count] + values


class OurRolloutBuffer(RolloutBuffer):
    """The same tensors, on memory that NumPy knows; one call for all steps of all environments.

    Columns that an environment has not filled come out as 0.
    """

    def __init__(self, arrays: dict[str, Any], step_counts: list[int], stale: float) -> None:
        super().__init__(arrays, step_counts, stale)
        shape = self.rewards.shape
        self.inputs = [arrays[name].numpy() for name in ("rewards", "values")]
        self.flags = [arrays[name].numpy() for name in ("dones", "truncated")]
        self.bootstrap, self.steps = arrays["bootstrap_values"].numpy(), np.arange(shape[1])
        self.follows = np.zeros(shape, np.float32)
        self.out = tuple(np.full(shape, stale, np.float32) for _ in range(3))
        self.advantages, self.returns, self.td_errors = map(torch.from_numpy, self.out)

    def compute_advantages_and_returns(self) -> None:
        (rewards, values), (dones, truncated), follows = self.inputs, self.flags, self.follows
        counts = np.array(self.step_counts)[:, None]
        follows[:, :-1] = values[:, 1:]
        follows[self.steps == counts - 1] = 0.0  # what esper-lite does without a flag there
        np.copyto(follows, self.bootstrap, where=truncated)
        ll.gae(
            rewards, values, follows, dones > truncated, truncated, gamma=GAMMA, lambda_=LAMBDA,
            valid=self.steps < counts, time_axis=1, td_errors=True, out=self.out,
        )  # fmt: skip


# --- asymexp: successors at geometric gaps -------------------------------------------------------


class EpisodicBuffer:
    """Keeps arrays [episodes, steps]; an episode's last two observations are marked as terminal."""

    def __init__(self, obs: np.ndarray, terminals: np.ndarray, lengths: np.ndarray) -> None:
        self.obs, self.terminals, self.lengths = obs, terminals, lengths
        self.rng = np.random.default_rng(0)

    def sample(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return observations and successors; the second mark ahead is looked for one by one."""
        rows = self.rng.integers(len(self.lengths), size=count)
        lengths = self.lengths[rows]
        starts = (self.rng.random(count) * (lengths - 1)).astype(np.int64)
        horizons = np.empty(count, np.int64)
        for i, (row, start, length) in enumerate(zip(rows, starts, lengths, strict=True)):
            marks = np.where(self.terminals[row, start:length] == 1)[0]
            horizons[i] = marks[min(1, len(marks) - 1)] if len(marks) else length - 1 - start
        inside = 1 - (1 - DISCOUNT**horizons) * self.rng.random(count)
        gaps = 1 + np.floor(np.log(inside) / np.log(DISCOUNT)).astype(np.int64)
        return self.obs[rows, starts], self.obs[rows, starts + np.minimum(gaps, horizons)]


class OurEpisodicBuffer:
    """The same arrays, taken over once; `sample` returns what it returned."""

    def __init__(self, obs: np.ndarray, terminals: np.ndarray, lengths: np.ndarray) -> None:
        self.buffer = ll.EpisodicReplayBuffer.from_padded(obs, terminals, lengths)

    def sample(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        batch = self.buffer.sample(count, discount=DISCOUNT)
        return batch["obs"], batch["next_obs"]


# --- SLM-Lab: a memory of lists ------------------------------------------------------------------


class ListMemory:
    """Keeps a list for each field, states in half precision, and the newest next state aside."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.head, self.size, self.seen = capacity, -1, 0, 0
        self.names = ("states", "actions", "rewards", "dones", "terminateds", "truncateds")
        self.columns: dict[str, list] = {name: [None] * capacity for name in self.names}
        self.next_states: deque = deque(maxlen=1)

    def add(self, state, action, reward, next_state, terminated, truncated) -> None:
        self.head = (self.head + 1) % self.capacity
        if state.dtype != np.uint8:
            state, next_state = state.astype(np.float16), next_state.astype(np.float16)
        values = (state, action, reward, terminated or truncated, terminated, truncated)
        for name, value in zip(self.names, values, strict=True):
            self.columns[name][self.head] = value
        self.next_states.append(next_state)
        self.size, self.seen = min(self.capacity, self.size + 1), self.seen + 1

    def newest(self) -> np.ndarray:
        return self.columns["states"][self.head].astype(np.float32)


class OurMemory:
    """The same transitions in a `ReplayBuffer`, next states included, in single precision."""

    def __init__(self, capacity: int) -> None:
        numbers, flag = ((4,), np.float32), ((), np.bool_)
        self.buffer = ll.ReplayBuffer(
            capacity,
            {"state": numbers, "action": ((), np.int64), "reward": ((), np.float32),
             "next_state": numbers, "terminated": flag, "truncated": flag},
        )  # fmt: skip
        self.add = self.buffer.add

    def newest(self) -> np.ndarray:
        return self.buffer.sample(1, newest=1)["state"][0]


# --- SLM-Lab: the loss of double DQN -------------------------------------------------------------


def predictions_and_targets(net: Any, batch: dict[str, Any], target_net: Any) -> tuple[Any, Any]:
    """Return the taken actions' values, and double DQN's targets."""
    q_preds = net(batch["state"])
    with torch.no_grad():
        online_q_preds = net(batch["next_state"])
        next_q_preds = target_net(batch["next_state"])
    act_q_preds = q_preds.gather(-1, batch["action"].long().unsqueeze(-1)).squeeze(-1)
    online_actions = online_q_preds.argmax(dim=-1, keepdim=True)
    max_next_q_preds = next_q_preds.gather(-1, online_actions).squeeze(-1)
    return act_q_preds, batch["reward"] + GAMMA * (1 - batch["done"]) * max_next_q_preds


def shipped_q_loss(self: Any, net: Any, batch: dict[str, Any], target_net: Any) -> Any:
    """Return the loss as shipped: the debug string is made at each call, whatever is logged."""
    act_q_preds, targets = predictions_and_targets(net, batch, target_net)
    LOG.debug(f"act_q_preds: {act_q_preds}\nact_q_targets: {targets}")
    return torch.nn.functional.smooth_l1_loss(act_q_preds, targets)


def silent_q_loss(self: Any, net: Any, batch: dict[str, Any], target_net: Any) -> Any:
    """Return the loss as shipped, the debug line deleted."""
    return torch.nn.functional.smooth_l1_loss(*predictions_and_targets(net, batch, target_net))


def our_q_loss(self: Any, net: Any, batch: dict[str, Any], target_net: Any) -> Any:
    """Return the loss by our two functions."""
    q, state = net(batch["state"]), batch["next_state"]
    with torch.no_grad():
        following = {"next_q": target_net(state), "next_q_online": net(state)}
    targets = ll.q_targets(batch["reward"], batch["done"] != 0, **following, gamma=GAMMA)
    return ll.q_loss(q, batch["action"], targets, loss="huber")[0]


# --- AvataRL: the loss, as its training script calls it ------------------------------------------


def looped_avatarl(student: Any, critic: Any, gold: Any, top_k: int) -> tuple[Any, dict]:
    """Return the loss of windows of logits by the looped original, and numbers for the log."""
    from suites.avatarl.plain import looped

    return looped(student.flatten(0, 1), critic.flatten(0, 1), gold.flatten(), top_k)


def our_avatarl(student: Any, critic: Any, gold: Any, top_k: int) -> tuple[Any, dict]:
    """Return the same loss by our function, and numbers for the log."""
    loss, stats = ll.avatarl_loss(student, critic, gold, top_k=top_k, variant="original")
    return loss, {name: value.item() for name, value in stats.items()}


# --- one function of a whole program -------------------------------------------------------------


def our_advantages(self: Any, rollout: dict[str, Any], last_value: Any, last_done: Any) -> Any:
    """Return GAE's advantages; done[t] says that the observation at t begins an episode."""
    reward, value = rollout["reward"], rollout["value"]
    ends = torch.vstack([rollout["done"][1:], last_done]) != 0
    following, cut = torch.vstack([value[1:], last_value]), torch.zeros_like(ends)
    return ll.gae(reward, value, following, ends, cut, gamma=GAMMA, lambda_=LAMBDA)[0]


PATCHES = {  # the class, its method, and what replaces it
    "gae": ("Learner", "advantages", our_advantages),
    "debug_line": ("DoubleDQN", "calc_q_loss", shipped_q_loss),
    "q_loss": ("DoubleDQN", "calc_q_loss", our_q_loss),
}


def patch(names: dict[str, Any], what: str) -> None:
    """Replace one function of a program that has been imported."""
    owner, method, function = PATCHES[what]
    setattr(names[owner], method, function)
