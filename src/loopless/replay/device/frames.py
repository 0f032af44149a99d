"""A ring of pictures around any ring buffer on the device, which stores each frame only once.

Where observations are the last few frames of an episode, a transition shares all of its frames but
one with its neighbors. Frames lie in a ring of their own, in the order in which they came: every
transition adds the newest frame of its successor, and the first one of an episode also those of its
observation. Each frame has a link to the frame before it, so that a stack is found by following
links, whatever lies between. Nothing is assumed about how the first stack of an episode is filled.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.refusals import check_count, refuse
from loopless.replay.device.layout import JAX, check_fits, read_values, take
from loopless.replay.device.prioritized import PrioritizedBuffer
from loopless.replay.device.words import wrap
from loopless.replay.fields import Field
from loopless.replay.storage.memory import count_bytes, readable_bytes

SPARE = 20  # the ring of frames is larger than that of transitions by 1 / SPARE
PLACE, COUNT = Field((), "int32"), Field((), "uint32")


class FramesState(NamedTuple):
    """Transitions that name their frames, and the frames."""

    inner: Any  # the state of the ring buffer
    frames: jax.Array  # [slots, height, width, channels of a frame]
    links: jax.Array  # int32 [slots]: the frame before each one; the first of an episode: itself
    written: jax.Array  # uint32: how many frames were ever added
    newest: jax.Array  # int32 [envs]: the newest frame of each stream
    ended: jax.Array  # bool [envs]: whether the next transition of a stream starts an episode

    @property
    def ring(self) -> Any:
        """Return the state of the ring of transitions."""
        return getattr(self.inner, "ring", self.inner)

    @property
    def size(self) -> jax.Array:
        """Return how many transitions are stored, int32."""
        return self.ring.size


@dataclass(frozen=True, repr=False)
class FrameBuffer:
    """A `RingBuffer` or `PrioritizedBuffer` whose pictures "obs" and "next_obs" are stored once.

        fields = {"obs": ((84, 84, 4), np.uint8), "next_obs": ((84, 84, 4), np.uint8), ...}
        buffer = FrameBuffer(RingBuffer(100_000, fields), stack=4)
        state = buffer.add(buffer.init(), transitions)
        batch = buffer.sample(state, key, 32)      # as the buffer without frames would give it

    The last axis of a picture is `stack` frames, the oldest first; 1 means that pictures are no
    stacks. Transitions must be consecutive steps of `envs` streams, each observation the successor
    of the one before it unless an episode ended. There is room for the frames of `capacity`
    transitions in episodes of at least 20 · stack steps; with shorter ones the oldest transitions
    make room earlier.
    """

    plain: Any
    stack: int = 1

    def __post_init__(self) -> None:
        fields = dict(self.plain.fields)
        problems = check_count("stack", self.stack, 1)
        obs = fields.get("obs")
        if obs is None or fields.get("next_obs") != obs:
            problems.append("the fields obs and next_obs must be there, with equal shapes")
        elif not problems and (not obs.shape or obs.shape[-1] % self.stack):
            problems.append(
                f"obs has shape {obs.shape}, whose last axis is not {self.stack} frames"
            )
        if not {"terminated", "truncated"} <= fields.keys():
            problems.append("the fields terminated and truncated must be there")
        refuse("FrameBuffer", problems)

    @property
    def inner(self) -> Any:
        """Return the handle of the buffer that holds the places of frames."""
        named = dict(self.plain.fields) | {"obs": PLACE, "next_obs": PLACE, "written": COUNT}
        options = {"n_step": self.plain.n_step, "gamma": self.plain.gamma, "envs": self.plain.envs}
        if isinstance(self.plain, PrioritizedBuffer):
            options |= {"alpha": self.plain.alpha, "dtype": self.plain.dtype}
        return type(self.plain)(self.plain.capacity, tuple(named.items()), **options)

    @property
    def envs(self) -> int:
        """Return how many streams are interleaved."""
        return self.plain.envs

    @property
    def capacity(self) -> int:
        """Return how many transitions fit."""
        return self.plain.capacity

    @property
    def frame(self) -> Field:
        """Return the shape and dtype of a frame."""
        obs = dict(self.plain.fields)["obs"]
        return Field((*obs.shape[:-1], obs.shape[-1] // self.stack), obs.dtype)

    @property
    def slots(self) -> int:
        """Return how many frames fit."""
        return self.capacity + self.capacity // SPARE + self._reach

    @property
    def _reach(self) -> int:
        """Return how many frames may lie between the oldest and the newest of a transition."""
        return self.stack * (self.stack + 1) * self.envs

    @property
    def _period(self) -> int:
        """Return after how many frames counting starts again at 0, a multiple of `slots`."""
        return 2**31 // self.slots * self.slots

    @property
    def nbytes(self) -> int:
        """Return the bytes of a state."""
        return self.inner.nbytes + count_bytes(self.slots, self._arrays(), JAX)

    def _arrays(self) -> dict[str, Field]:
        return {"frames": self.frame, "links": PLACE}

    def __repr__(self) -> str:
        return (
            f"FrameBuffer({type(self.plain).__name__}, {self.capacity:,} transitions, "
            f"{self.slots:,} frames {self.frame}, {readable_bytes(self.nbytes)})"
        )

    def init(self) -> FramesState:
        """Return an empty state; raise, before anything is allocated, if it does not fit."""
        check_fits("FrameBuffer", self.slots, self._arrays(), f"{self.slots:,} frames")
        frames = jnp.zeros((self.slots, *self.frame.shape), self.frame.dtype)
        links, newest = jnp.zeros(self.slots, jnp.int32), jnp.zeros(self.envs, jnp.int32)
        ended = jnp.ones(self.envs, bool)
        return FramesState(self.inner.init(), frames, links, jnp.uint32(0), newest, ended)

    def can_sample(self, state: FramesState, batch_size: int = 1) -> jax.Array:
        """Return whether there are at least `batch_size` transitions."""
        return state.size >= batch_size

    def add(
        self, state: FramesState, transitions: Mapping[str, Any], valid: Any = None
    ) -> FramesState:
        """Return the state after adding [envs, ...] or [steps, envs, ...] of transitions, in turn.

        They replace the oldest. Those whose `valid` is false are left out, and take no slot.
        """
        where = "FrameBuffer.add"
        values, leading = read_values(where, transitions, dict(self.plain.fields), axes=2)
        count = math.prod(leading)
        if count % self.envs or (len(leading) == 2 and leading[1] != self.envs):
            refuse(where, [f"the transitions have leading shape {leading}, not […, {self.envs}]"])
        by_step = {name: _cut(value, leading, self.envs) for name, value in values.items()}
        taken = jnp.ones((count // self.envs, self.envs), bool)
        taken = taken if valid is None else jnp.asarray(valid).reshape(taken.shape)
        stream = state.written, state.newest, state.ended
        ends = by_step["terminated"] | by_step["truncated"]
        stream, (number, is_new, obs, written) = lax.scan(self._place, stream, (ends, taken))
        state = self._write(state, by_step, number, is_new, obs, stream[0])
        places = {"obs": obs, "next_obs": self._slot(number[..., -1]), "written": written}
        rows = {**by_step, **places}
        rows = {name: x.reshape(count, *x.shape[2:]) for name, x in rows.items()}
        inner = self.inner.add(state.inner, rows, None if valid is None else taken.reshape(count))
        written, newest, ended = stream
        state = state._replace(inner=inner, written=written, newest=newest, ended=ended)
        return self._drop(state, count * (self.stack + 1))

    def _place(self, stream: tuple, step: tuple) -> tuple:
        """Number the frames of one step, counted since the first add.

        A transition has `stack` frames of its observation, of which only those at the start of an
        episode are new, and one of its successor.
        """
        (written, newest, ended), (ends, taken) = stream, step
        starts = jnp.broadcast_to((ended & taken)[:, None], (self.envs, self.stack))
        is_new = jnp.concatenate([starts, taken[:, None]], 1)
        order = jnp.cumsum(is_new.reshape(-1), dtype=jnp.uint32).reshape(is_new.shape)
        number = wrap(written + order + jnp.uint32(self._period - 1), self._period)
        obs = jnp.where(ended, self._slot(number[:, -2]), newest)
        before = wrap(written + order[:, 0] - is_new[:, 0].astype(jnp.uint32), self._period)
        newest = jnp.where(taken, self._slot(number[:, -1]), newest)
        ended = jnp.where(taken, ends, ended)
        written = wrap(written + order[-1, -1], self._period)
        return (written, newest, ended), (number, is_new, obs, before)

    def _since(self, number: jax.Array, end: jax.Array) -> jax.Array:
        """Return how many frames were added from `number` on, until `end` was reached."""
        return wrap(end + jnp.uint32(self._period) - number, self._period)

    def _slot(self, number: jax.Array) -> jax.Array:
        return (number % jnp.uint32(self.slots)).astype(jnp.int32)

    def _write(self, state: FramesState, values: dict, number, is_new, obs, end) -> FramesState:
        """Write the frames that are new, unless later ones of the same call take their place."""
        slot = self._slot(number)
        stays = is_new & (self._since(number, end) <= self.slots)
        target = jnp.where(stays, slot, self.slots)
        first = jnp.concatenate([slot[..., :1], slot[..., : self.stack - 1]], -1)
        links = jnp.concatenate([first, obs[..., None]], -1)
        stacks, successors = self._frames(values["obs"]), self._frames(values["next_obs"])
        frames = jnp.concatenate([stacks, successors[:, :, -1:]], 2)
        flat = target.reshape(-1)
        return state._replace(
            frames=state.frames.at[flat].set(frames.reshape(-1, *self.frame.shape), mode="drop"),
            links=state.links.at[flat].set(links.reshape(-1), mode="drop"),
        )

    def _frames(self, pictures: jax.Array) -> jax.Array:
        """Return pictures [..., height, width, n] as frames [..., stack, height, width, c]."""
        cut = pictures.reshape(*pictures.shape[:-1], self.stack, -1)
        return jnp.moveaxis(cut, -2, pictures.ndim - len(self.frame.shape))

    def _drop(self, state: FramesState, most: int) -> FramesState:
        """Drop the transitions whose frames were overwritten, at most `most` of the oldest."""
        ring, most = state.ring, min(most, self.capacity)
        age = lax.iota(jnp.uint32, most)
        oldest = (ring.head - ring.size) % self.capacity
        slots = wrap(oldest.astype(jnp.uint32) + age, self.capacity)
        written = self.inner.layout.read_column(ring.packed, slots, "written")
        lost = self._since(written, state.written) > self.slots - self._reach
        lost = lost & (age < ring.size.astype(jnp.uint32))
        return state._replace(inner=self.inner.drop(state.inner, slots, lost))

    def sample(
        self, state: FramesState, key: Any, batch_size: int, batches=None, **options
    ) -> dict:
        """Return what the plain buffer's `sample` returns, with the same draws."""
        batch = self.inner.sample(state.inner, key, batch_size, batches, **options)
        return self._expand(state, batch)

    def gather(self, state: FramesState, indices: Any, gamma: Any = None) -> dict[str, Any]:
        """Return the transitions in slots `indices`, of any shape, as `sample` does."""
        return self._expand(state, self.inner.gather(state.inner, indices, gamma))

    def update_priorities(
        self, state: FramesState, indices: Any, priorities: Any, **options: Any
    ) -> FramesState:
        """Call `update_priorities` of a prioritized buffer."""
        inner = self.inner.update_priorities(state.inner, indices, priorities, **options)
        return state._replace(inner=inner)

    def _expand(self, state: FramesState, batch: dict) -> dict:
        del batch["written"]
        obs, next_obs = self._stack(state, batch["obs"]), self._stack(state, batch["next_obs"])
        return batch | {"obs": obs, "next_obs": next_obs}

    def _stack(self, state: FramesState, newest: jax.Array) -> jax.Array:
        """Return the pictures [..., height, width, stack · c] whose newest frames are `newest`."""
        places = [newest]
        for _ in range(self.stack - 1):
            places.insert(0, take(state.links, places[0]))
        frames = take(state.frames, jnp.stack(places, -1))
        pictures = jnp.moveaxis(frames, newest.ndim, -2)
        return pictures.reshape(*newest.shape, *dict(self.plain.fields)["obs"].shape)


def _cut(value: jax.Array, leading: tuple[int, ...], envs: int) -> jax.Array:
    """Return transitions [*leading, ...] as [steps, envs, ...]."""
    return value.reshape(-1, envs, *value.shape[len(leading) :])
