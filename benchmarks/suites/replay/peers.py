"""Other libraries' buffers, full, each called as its users call it.

Filling them is not timed. Their output is converted to NumPy for the check only, untimed. flashbax
is called from the host like the others, and inside a compiled scan, as ours is: see `scanned`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.processes import jax, peer, torch, warnings_of_peers_ignored
from suites.q_learning.peers import BASELINES, BASELINES_NAMES, fill_baselines
from suites.replay import cases
from suites.replay.cases import ALPHA, BETA, FIELDS, Arrays, Sampler, sampler

CPPRB, TORCHRL, TIANSHOU, FLASHBAX = "cpprb", "TorchRL", "Tianshou", "flashbax"
RLOX = "rlox"
SAME_NAMES = {name: name for name in FIELDS}
TIANSHOU_NAMES, RLOX_NAMES = (
    dict(zip(FIELDS, names, strict=True))
    for names in (
        ("obs", "act", "rew", "obs_next", "terminated"),
        ("obs", "actions", "rewards", "next_obs", "terminated"),
    )
)


def _columns(output: Any, names: dict[str, str] = SAME_NAMES) -> Arrays:
    """Return fields by our names, [B, 1] as [B]; copied, because cpprb overwrites its indices."""
    arrays = {ours: np.asarray(output[theirs]).copy() for ours, theirs in names.items()}
    return {
        name: x.reshape(len(x), *FIELDS[name][0]) if name in FIELDS else x.reshape(-1)
        for name, x in arrays.items()
    }


def _seed_global_generator() -> None:
    np.random.seed(0)  # noqa: NPY002  (cpprb, SB3 and Tianshou draw from it)


def _cpprb_buffer(case: cases.Full, kind: str = "ReplayBuffer", **settings: Any) -> Any:
    _seed_global_generator()
    fields = {
        name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in FIELDS.items()
    }
    buffer = getattr(peer("cpprb"), kind)(case.count, fields, **settings)
    buffer.add(**case.stored)
    return buffer


def _cpprb(case: cases.Uniform) -> Sampler:
    buffer = _cpprb_buffer(case)
    return sampler(lambda: buffer.sample(case.batch), _columns, case.batches)


def _cpprb_prioritized(case: cases.Prioritized) -> Sampler:
    buffer = _cpprb_buffer(case, "PrioritizedReplayBuffer", alpha=ALPHA)
    names = SAME_NAMES | {"indices": "indexes", "weights": "weights"}
    return case.sampler(
        lambda: buffer.sample(case.batch, beta=BETA),
        buffer.update_priorities,
        partial(_columns, names=names),
        itemgetter("indexes"),
    )


def _cpprb_adding(case: cases.Adding) -> Call:
    buffer, step = _cpprb_buffer(case), case.step
    return Call(lambda: buffer.add(**step), lambda _: _columns(buffer.get_all_transitions()))


def _baselines_buffer(case: cases.Full, envs: int) -> Any:
    spaces = peer("gymnasium.spaces")
    _seed_global_generator()
    seen = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    make = peer("stable_baselines3.common.buffers").ReplayBuffer
    return make(case.count, seen, spaces.Discrete(2), device="cpu", n_envs=envs)


def _baselines(case: cases.Uniform) -> Sampler:
    buffer = _baselines_buffer(case, 1)
    fill_baselines(buffer, case.stored)
    read = partial(_columns, names=BASELINES_NAMES)
    return sampler(lambda: buffer.sample(case.batch), lambda out: read(out._asdict()), case.batches)


def _baselines_adding(case: cases.Adding) -> Call:
    buffer = _baselines_buffer(case, case.envs)
    infos: list[dict[str, Any]] = [{} for _ in range(case.envs)]

    def arguments(step: Arrays) -> tuple:
        fields = ("obs", "next_obs", "action", "reward", "terminated")
        return (*(step[name] for name in fields), infos)

    for step in case.steps():
        buffer.add(*arguments(step))
    new = arguments(case.step)

    def read(_: None) -> Arrays:
        flat = {ours: getattr(buffer, theirs) for ours, theirs in BASELINES_NAMES.items()}
        return _columns({name: x.reshape(case.count, -1) for name, x in flat.items()})

    return Call(lambda: buffer.add(*new), read)


def _tensordict(arrays: Arrays) -> Any:
    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return peer("tensordict").TensorDict(tensors, [len(arrays["obs"])])


def _torchrl_buffer(case: cases.Full, kind: str = "ReplayBuffer", **settings: Any) -> Any:
    data = peer("torchrl.data")
    with warnings_of_peers_ignored():
        logging.getLogger("torchrl").setLevel(logging.WARNING)
        torch.manual_seed(0)
        buffer = getattr(data, kind)(storage=data.LazyTensorStorage(case.count), **settings)
        buffer.extend(_tensordict(case.stored))
    return buffer


def _torchrl(case: cases.Uniform) -> Sampler:
    return sampler(_torchrl_buffer(case, batch_size=case.batch).sample, _columns, case.batches)


def _torchrl_prioritized(case: cases.Prioritized) -> Sampler:
    if peer("torchrl.data.replay_buffers.samplers").prioritized.SumSegmentTreeFp32 is None:
        raise ImportError("its compiled sum trees do not load with this version of PyTorch")
    settings = {"alpha": ALPHA, "beta": BETA, "batch_size": case.batch}
    buffer = _torchrl_buffer(case, "PrioritizedReplayBuffer", **settings)

    def update(indices: Any, priorities: np.ndarray) -> None:
        buffer.update_priority(torch.as_tensor(indices), torch.from_numpy(priorities))

    def read(output: Any) -> Arrays:
        drawn, info = output
        return _columns(drawn) | _columns(info, {"indices": "index", "weights": "priority_weight"})

    draw = partial(buffer.sample, return_info=True)
    return case.sampler(draw, update, read, lambda output: output[1]["index"])


def _torchrl_adding(case: cases.Adding) -> Call:
    buffer, step = _torchrl_buffer(case), _tensordict(case.step)
    return Call(lambda: buffer.extend(step), lambda _: _columns(buffer[:]))


def _tianshou_fields(arrays: Arrays) -> dict[str, Any]:
    fields = {theirs: arrays[ours] for ours, theirs in TIANSHOU_NAMES.items()}
    ended = fields["terminated"]
    return fields | {"truncated": np.zeros_like(ended), "done": ended}


def _read_tianshou(output: Any) -> Arrays:
    batch, indices = output
    beside = {"weights": "weight"} if "weight" in batch.get_keys() else {}
    return _columns(batch, TIANSHOU_NAMES | beside) | {"indices": indices}


def _tianshou_buffer(case: cases.Full) -> Any:
    _seed_global_generator()
    return peer("tianshou.data").ReplayBuffer.from_data(**_tianshou_fields(case.stored))


def _tianshou(case: cases.Uniform) -> Sampler:
    buffer = _tianshou_buffer(case)
    return sampler(lambda: buffer.sample(case.batch), _read_tianshou, case.batches)


def _tianshou_prioritized(case: cases.Prioritized) -> Sampler:
    make = peer("tianshou.data").PrioritizedReplayBuffer
    buffer = make(case.count, alpha=ALPHA, beta=BETA)
    buffer.update(_tianshou_buffer(case))
    draw, update = partial(buffer.sample, case.batch), buffer.update_weight
    return case.sampler(draw, update, _read_tianshou, itemgetter(1))


def _tianshou_adding(case: cases.Adding) -> Call:
    data = peer("tianshou.data")
    buffer = data.VectorReplayBuffer(case.count, case.envs)
    for arrays in case.steps():
        buffer.add(data.Batch(**_tianshou_fields(arrays)))
    step = data.Batch(**_tianshou_fields(case.step))
    return Call(lambda: buffer.add(step), lambda _: _columns(buffer[:], TIANSHOU_NAMES))


def _rlox_rows(arrays: Arrays) -> list[np.ndarray]:
    """Return what `push_batch` takes: flat float32 arrays, and no truncations."""
    fields = [arrays[name] for name in ("obs", "next_obs", "action", "reward")]
    ends = arrays["terminated"].astype(np.uint8)
    return [*(x.astype(np.float32).reshape(-1) for x in fields), ends, np.zeros_like(ends)]


def _rlox_buffer(case: cases.Full) -> Any:
    buffer = peer("rlox").ReplayBuffer(case.count, 4, 1)
    buffer.push_batch(*_rlox_rows(case.stored))
    return buffer


def _rlox(case: cases.Uniform) -> Sampler:
    buffer, seeds = _rlox_buffer(case), count()
    read = partial(_columns, names=RLOX_NAMES)
    return sampler(lambda: buffer.sample(case.batch, next(seeds)), read, case.batches)


def _rlox_prioritized(case: cases.Prioritized) -> Sampler:
    buffer, seeds = peer("rlox").PrioritizedReplayBuffer(case.count, 4, 1, ALPHA, BETA), count()
    actions = case.stored["action"].astype(np.float32)[:, None]
    fields = [case.stored[name] for name in ("obs", "reward", "terminated", "next_obs")]
    for obs, reward, ended, following, action in zip(*fields, actions, strict=True):
        buffer.push(obs, action, reward, ended, False, following)

    def update(indices: Any, priorities: np.ndarray) -> None:
        buffer.update_priorities(indices.astype(np.uint64), priorities.astype(np.float64))

    read = partial(_columns, names=RLOX_NAMES | {name: name for name in ("indices", "weights")})
    return case.sampler(lambda: buffer.sample(case.batch, next(seeds)), update, read)


def _rlox_adding(case: cases.Adding) -> Call:
    buffer, step = _rlox_buffer(case), _rlox_rows(case.step)
    return Call(lambda: buffer.push_batch(*step), None)


def _flashbax_buffer(
    case: cases.Full, batch: int = 1, prioritized: bool = False
) -> tuple[Any, Any, Any]:
    """Return a buffer, its full state, and a function of state and key that samples from it."""
    flashbax, stored = peer("flashbax"), case.stored
    sizes: dict[str, Any] = {"max_length": case.count, "min_length": 1, "sample_batch_size": batch}
    if prioritized:
        make = flashbax.make_prioritised_item_buffer
        buffer = make(**sizes, add_batches=True, priority_exponent=ALPHA, device="cpu")
    else:
        buffer = flashbax.make_item_buffer(**sizes, add_batches=True)
    rows = {name: jax.numpy.asarray(values) for name, values in stored.items()}
    state = buffer.init({name: values[0] for name, values in rows.items()})

    def sample(state: Any, key: Any) -> dict[str, Any]:
        drawn = buffer.sample(state, key)
        if not prioritized:
            return drawn.experience
        weights = (case.count * drawn.probabilities) ** -BETA  # flashbax leaves them to its callers
        return drawn.experience | {"indices": drawn.indices, "weights": weights / weights.max()}

    return buffer, jax.jit(buffer.add, donate_argnums=0)(state, rows), sample


def _from_jax(batch: dict[str, Any]) -> Arrays:
    return {name: np.array(values) for name, values in batch.items()}


def _flashbax(case: Any, prioritized: bool = False) -> Sampler:
    buffer, state, sample = _flashbax_buffer(case, case.batch, prioritized)
    set_priorities = jax.jit(buffer.set_priorities, donate_argnums=0) if prioritized else None
    key = jax.random.key(0)

    @jax.jit
    def split_and_sample(state, key):
        key, draw_key = jax.random.split(key)
        return sample(state, draw_key), key

    def draw() -> Any:
        nonlocal key
        batch, key = split_and_sample(state, key)
        return jax.block_until_ready(batch)

    def update(indices: Any, priorities: Any) -> None:
        nonlocal state
        assert set_priorities is not None
        state = jax.block_until_ready(set_priorities(state, indices, priorities))

    if prioritized:
        return case.sampler(draw, update, _from_jax)
    return sampler(draw, _from_jax, case.batches)


def _flashbax_adding(case: cases.Adding) -> Call:
    buffer, state, _ = _flashbax_buffer(case)
    add, step = jax.jit(buffer.add, donate_argnums=0), case.step

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(add(state, step))

    def read(_: None) -> Arrays:
        return {name: np.array(values[0]) for name, values in state.experience.items()}

    return Call(run, read)


def scanned(
    case: cases.Scanned,
    state: Any,
    add: Callable[[Any, Any], Any],
    sample: Callable[[Any, Any], Any],
    set_priorities: Callable[[Any, Any, Any], Any] | None,
) -> Sampler:
    """Return a sampler that times a scan over a donated state; `draw` leaves the state alone.

    The buffer's pure functions are add(state, rows), sample(state, key), and set_priorities(state,
    indices, priorities). Every step adds the same rows: the first transitions that are stored.
    """
    rows = {name: jax.numpy.asarray(x[: case.envs]) for name, x in case.stored.items()}
    fresh, key = jax.numpy.asarray(case.fresh), jax.random.key(0)
    names = [*FIELDS, "weights"] if case.prioritized else [*FIELDS]

    def once(state, key):
        if case.envs:
            state = add(state, rows)
        batch = jax.lax.optimization_barrier(sample(state, key))
        if set_priorities is not None:
            state = set_priorities(state, batch["indices"], fresh)
        return state, sum(batch[name].sum(dtype=jax.numpy.float32) for name in names)

    @partial(jax.jit, donate_argnums=0)
    def many(state, key):
        keys = jax.random.split(key, cases.REPEATS + 1)
        return *jax.lax.scan(once, state, keys[1:]), keys[0]

    @jax.jit
    def many_draws(state, key):
        keys = jax.random.split(key, cases.REPEATS + 1)
        return jax.lax.map(lambda key: once(state, key)[1], keys[1:]), keys[0]

    draw_once = jax.jit(sample)

    def run() -> None:
        nonlocal state, key
        if case.prioritized or case.envs:
            state, sums, key = many(state, key)
        else:  # a carry that nothing writes to would be copied
            sums, key = many_draws(state, key)
        jax.block_until_ready(sums)

    def draw() -> Any:
        nonlocal key
        key, draw_key = jax.random.split(key)
        return draw_once(state, draw_key)

    def update(indices: np.ndarray, priorities: np.ndarray) -> None:
        nonlocal state
        assert set_priorities is not None
        state = jax.jit(set_priorities)(state, indices, priorities)

    if case.prioritized:
        update(np.arange(case.count), case.priorities)
    return Sampler(run, _from_jax, draw, update)


def _flashbax_scanned(case: cases.Scanned) -> Sampler:
    buffer, state, sample = _flashbax_buffer(case, case.batch, case.prioritized)
    update = buffer.set_priorities if case.prioritized else None
    return scanned(case, state, buffer.add, sample, update)


def _peer(name: str, prepare: Callable[[Any], Call], note: str = "") -> Contender:
    return Contender(name, name.lower(), "peer", prepare, note=note)


UNIFORM_PEERS = (
    _peer(CPPRB, _cpprb, "NumPy arrays; scalars as [B, 1]"),
    _peer(BASELINES, _baselines, "gives tensors, [B, 1] each"),
    _peer(TORCHRL, _torchrl, "ReplayBuffer on LazyTensorStorage, no prefetch; gives a tensordict"),
    _peer(
        TIANSHOU, _tianshou,
        "gives a Batch with truncated, done, info and policy beside the five fields",
    ),
    _peer(RLOX, _rlox, "actions as floats, no indices; a new seed in each call"),
    _peer(FLASHBAX, _flashbax, "jitted; a key split in each call"),
)  # fmt: skip
PRIORITIZED_PEERS = (
    _peer(CPPRB, _cpprb_prioritized, "indices and weights are views that the next draw overwrites"),
    _peer(TORCHRL, _torchrl_prioritized, "sample(return_info=True)"),
    _peer(TIANSHOU, _tianshou_prioritized),
    _peer(RLOX, _rlox_prioritized, "actions as floats; a new seed in each call"),
    _peer(
        FLASHBAX, partial(_flashbax, prioritized=True),
        "jitted sample and set_priorities; weights from its probabilities",
    ),
)  # fmt: skip
ADDING_PEERS = (
    _peer(CPPRB, _cpprb_adding, "one add of 64 rows"),
    _peer(BASELINES, _baselines_adding, "n_envs=64; an empty info for each environment"),
    _peer(TORCHRL, _torchrl_adding, "extend; its tensordict was there"),
    _peer(
        TIANSHOU, _tianshou_adding,
        "VectorReplayBuffer, one buffer for each environment; its Batch was there",
    ),
    _peer(RLOX, _rlox_adding, "push_batch; not checked: it cannot list what it holds"),
    _peer(FLASHBAX, _flashbax_adding, "jitted add, state donated"),
)  # fmt: skip
FLASHBAX_SCANNED = _peer(FLASHBAX, _flashbax_scanned, "item and prioritised item buffer")
