"""Other libraries' buffers on the host, full, each called as its users call it.

Filling them is not timed. What they give is read as NumPy for the check only, after the clock has
stopped. Imports each library when prepared. Tests: `tests/suites/replay/test_bench_samplers.py`.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from loopless.bench.machine import warnings_of_peers_ignored
from suites.replay.samplers import Arrays, Sampler, sampler
from suites.replay.transitions import ALPHA, BETA, FIELDS, Adding, Prioritized, Uniform

CPPRB, BASELINES, TORCHRL, TIANSHOU = "cpprb", "Stable-Baselines3", "TorchRL", "Tianshou"


def _columns(output: Any, names: dict[str, str]) -> Arrays:
    """Columns by our names, [B, 1] as [B]; copies, for cpprb's next draw overwrites its indices."""
    found = {ours: np.asarray(output[theirs]).copy() for ours, theirs in names.items()}
    return {
        name: x.reshape(len(x), *FIELDS[name][0]) if name in FIELDS else x.reshape(-1)
        for name, x in found.items()
    }


SAME_NAMES = {name: name for name in FIELDS}


def _cpprb_fields() -> dict[str, Any]:
    return {name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in FIELDS.items()}


def _seed_global_generator() -> None:
    np.random.seed(0)  # noqa: NPY002  (cpprb, SB3 and Tianshou draw from it)


def _cpprb(case: Uniform) -> Sampler:
    import cpprb

    _seed_global_generator()
    buffer = cpprb.ReplayBuffer(case.count, _cpprb_fields())
    buffer.add(**case.stored)
    return sampler(
        lambda: buffer.sample(case.batch), lambda out: _columns(out, SAME_NAMES), case.batches
    )


def _cpprb_prioritized(case: Prioritized) -> Sampler:
    import cpprb

    _seed_global_generator()
    buffer = cpprb.PrioritizedReplayBuffer(case.count, _cpprb_fields(), alpha=ALPHA)
    buffer.add(**case.stored)
    buffer.update_priorities(np.arange(case.count), case.priorities)
    names = SAME_NAMES | {"indices": "indexes", "weights": "weights"}
    fresh = case.fresh

    def draw() -> Any:
        return buffer.sample(case.batch, beta=BETA)

    return Sampler(
        lambda: buffer.update_priorities(draw()["indexes"], fresh),
        lambda out: _columns(out, names),
        draw,
        buffer.update_priorities,
    )


def _cpprb_adding(case: Adding) -> Call:
    import cpprb

    buffer = cpprb.ReplayBuffer(case.count, _cpprb_fields())
    buffer.add(**case.stored)
    step = case.step
    return Call(
        lambda: buffer.add(**step),
        lambda _: _columns(buffer.get_all_transitions(), SAME_NAMES),
    )


def _baselines_buffer(count: int, envs: int) -> Any:
    with warnings_of_peers_ignored():
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

    _seed_global_generator()
    seen = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return ReplayBuffer(count, seen, spaces.Discrete(2), device="cpu", n_envs=envs)


def _baselines(case: Uniform) -> Sampler:
    buffer, stored = _baselines_buffer(case.count, 1), case.stored
    # A million calls of `add` would put the same values there.
    buffer.observations[:, 0] = stored["obs"]
    buffer.next_observations[:, 0] = stored["next_obs"]
    buffer.actions[:, 0, 0] = stored["action"]
    buffer.rewards[:, 0] = stored["reward"]
    buffer.dones[:, 0] = stored["terminated"]
    buffer.full = True
    names = {"obs": "observations", "next_obs": "next_observations", "action": "actions"}
    names |= {"reward": "rewards", "terminated": "dones"}
    return sampler(
        lambda: buffer.sample(case.batch), lambda out: _columns(out._asdict(), names), case.batches
    )


def _baselines_adding(case: Adding) -> Call:
    buffer = _baselines_buffer(case.count, case.envs)
    infos: list[dict[str, Any]] = [{} for _ in range(case.envs)]

    def arguments(step: Arrays) -> tuple:
        fields = ("obs", "next_obs", "action", "reward", "terminated")
        return (*(step[name] for name in fields), infos)

    for step in case.steps():
        buffer.add(*arguments(step))
    new = arguments(case.step)
    held = {"obs": "observations", "next_obs": "next_observations", "action": "actions"}
    held |= {"reward": "rewards", "terminated": "dones"}

    def read(_: None) -> Arrays:
        flat = {ours: getattr(buffer, theirs) for ours, theirs in held.items()}
        return _columns({k: v.reshape(case.count, -1) for k, v in flat.items()}, SAME_NAMES)

    return Call(lambda: buffer.add(*new), read)


def _tensordict(arrays: Arrays) -> Any:
    import torch
    from tensordict import TensorDict

    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return TensorDict(tensors, [len(arrays["obs"])])  # pyright: ignore[reportArgumentType]


def _torchrl_buffer(arrays: Arrays, batch: int | None = None) -> Any:
    with warnings_of_peers_ignored():
        import torch
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)
        torch.manual_seed(0)
        storage = LazyTensorStorage(len(arrays["obs"]))
        buffer = ReplayBuffer(storage=storage, batch_size=batch)
        buffer.extend(_tensordict(arrays))
    return buffer


def _torchrl(case: Uniform) -> Sampler:
    buffer = _torchrl_buffer(case.stored, case.batch)
    return sampler(buffer.sample, lambda out: _columns(out, SAME_NAMES), case.batches)


def _torchrl_prioritized(case: Prioritized) -> Sampler:
    with warnings_of_peers_ignored():
        import torch
        from torchrl.data import LazyTensorStorage, PrioritizedReplayBuffer
        from torchrl.data.replay_buffers.samplers import prioritized

        if prioritized.SumSegmentTreeFp32 is None:
            raise ImportError("its compiled sum trees do not load with this version of PyTorch")
        torch.manual_seed(0)
        buffer = PrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(case.count), batch_size=case.batch
        )
        buffer.extend(_tensordict(case.stored))
    fresh = torch.from_numpy(case.fresh)

    def draw() -> Any:
        return buffer.sample(return_info=True)

    def update(indices: np.ndarray, priorities: np.ndarray) -> None:
        buffer.update_priority(torch.from_numpy(indices), torch.from_numpy(priorities))

    def read(output: Any) -> Arrays:
        drawn, info = output
        beside = {"indices": "index", "weights": "priority_weight"}
        return _columns(drawn, SAME_NAMES) | _columns(info, beside)

    update(np.arange(case.count), case.priorities)
    return Sampler(lambda: buffer.update_priority(draw()[1]["index"], fresh), read, draw, update)


def _torchrl_adding(case: Adding) -> Call:
    buffer, step = _torchrl_buffer(case.stored), _tensordict(case.step)
    return Call(lambda: buffer.extend(step), lambda _: _columns(buffer[:], SAME_NAMES))


TIANSHOU_NAMES = {
    "obs": "obs",
    "action": "act",
    "reward": "rew",
    "next_obs": "obs_next",
    "terminated": "terminated",
}


def _tianshou_fields(arrays: Arrays) -> dict[str, Any]:
    fields = {theirs: arrays[ours] for ours, theirs in TIANSHOU_NAMES.items()}
    ended = fields["terminated"]
    return fields | {"truncated": np.zeros_like(ended), "done": ended}


def _read_tianshou(output: Any) -> Arrays:
    batch, indices = output
    beside = {"weights": "weight"} if "weight" in batch.get_keys() else {}
    return _columns(batch, TIANSHOU_NAMES | beside) | {"indices": indices}


def _tianshou(case: Uniform) -> Sampler:
    with warnings_of_peers_ignored():
        from tianshou.data import ReplayBuffer

    buffer = ReplayBuffer.from_data(**_tianshou_fields(case.stored))
    return sampler(lambda: buffer.sample(case.batch), _read_tianshou, case.batches)


def _tianshou_prioritized(case: Prioritized) -> Sampler:
    with warnings_of_peers_ignored():
        from tianshou.data import PrioritizedReplayBuffer, ReplayBuffer

    _seed_global_generator()
    buffer = PrioritizedReplayBuffer(case.count, alpha=ALPHA, beta=BETA)
    buffer.update(ReplayBuffer.from_data(**_tianshou_fields(case.stored)))
    buffer.update_weight(np.arange(case.count), case.priorities)
    fresh = case.fresh

    def draw() -> Any:
        return buffer.sample(case.batch)

    return Sampler(
        lambda: buffer.update_weight(draw()[1], fresh), _read_tianshou, draw, buffer.update_weight
    )


def _tianshou_adding(case: Adding) -> Call:
    with warnings_of_peers_ignored():
        from tianshou.data import Batch, VectorReplayBuffer

    buffer = VectorReplayBuffer(case.count, case.envs)
    for arrays in case.steps():
        buffer.add(Batch(**_tianshou_fields(arrays)))  # pyright: ignore[reportArgumentType]
    step: Any = Batch(**_tianshou_fields(case.step))
    return Call(lambda: buffer.add(step), lambda _: _columns(buffer[:], TIANSHOU_NAMES))


UNIFORM = (
    Contender(CPPRB, "cpprb", "peer", _cpprb, note="NumPy arrays; scalars as [B, 1]"),
    Contender(
        BASELINES, "stable-baselines3", "peer", _baselines, note="gives tensors, [B, 1] each"
    ),
    Contender(
        TORCHRL,
        "torchrl",
        "peer",
        _torchrl,
        note="ReplayBuffer on LazyTensorStorage, without prefetch; gives a tensordict",
    ),
    Contender(
        TIANSHOU,
        "tianshou",
        "peer",
        _tianshou,
        note="gives a Batch with truncated, done, info and policy beside the five fields",
    ),
)
PRIORITIZED = (
    Contender(
        CPPRB,
        "cpprb",
        "peer",
        _cpprb_prioritized,
        note="indices and weights are views that the next draw overwrites",
    ),
    Contender(TORCHRL, "torchrl", "peer", _torchrl_prioritized, note="sample(return_info=True)"),
    Contender(TIANSHOU, "tianshou", "peer", _tianshou_prioritized),
)
ADDING = (
    Contender(CPPRB, "cpprb", "peer", _cpprb_adding, note="one add of 64 rows"),
    Contender(
        BASELINES,
        "stable-baselines3",
        "peer",
        _baselines_adding,
        note="n_envs=64; an empty info for each environment",
    ),
    Contender(TORCHRL, "torchrl", "peer", _torchrl_adding, note="extend; its tensordict was there"),
    Contender(
        TIANSHOU,
        "tianshou",
        "peer",
        _tianshou_adding,
        note="VectorReplayBuffer, one buffer for each environment; its Batch was there",
    ),
)
