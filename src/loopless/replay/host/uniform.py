"""A ring of transitions drawn uniformly: `ReplayBuffer`.

What it shares with `prioritized` is in `ring`. Loop twin: `reference.replay`. Device twin:
`device.ring`.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal

from loopless.replay.host.ring import Ring
from loopless.replay.sampling import kernels
from loopless.replay.storage.file import Persistent


class ReplayBuffer(Ring, Persistent):
    """A ring of transitions, drawn uniformly and with replacement.

        buffer = ReplayBuffer(100_000, {"obs": ((4,), np.float32), "action": ((), np.int64)})
        buffer.add(obs=obs, action=action)      # one transition, or [n, ...] of them
        batch = buffer.sample(256)              # {"obs": [256, 4], "action": [256], "indices"}

    With `n_step` > 1, `sample` gives R = Σ_{k<h} γ^k r_k as "reward", γ^h as "discount", and
    next_obs, terminated and truncated of the window's last transition. h is n unless the window
    meets an end (terminated or truncated) or the newest transition. The discount of a terminated
    window is not 0: mask by `terminated`. The transitions must then be consecutive steps of `envs`
    interleaved streams, and next_obs at an end must be the true final observation. With `envs` > 1
    every `add` brings one transition of each stream.

    With `single_copy="obs"`, next_obs is not stored where it is the obs of the same stream's next
    transition, which halves the bytes of images. `add` and `sample` work as without it.

    With `storage="memmap"` and a new folder `path`, the transitions are in files there, which may
    be larger than memory. `flush` makes them permanent, `close` flushes, and
    `ReplayBuffer.open(path)` goes on from the last flush, also after a crash. One process at a
    time may write.

    Threads may share a buffer: each call has it to itself. After a fork, parent and child each have
    their own copy in memory, with equal generators, so that both draw the same indices.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Any],
        *,
        seed: int = 0,
        n_step: int = 1,
        gamma: float | None = None,
        envs: int = 1,
        single_copy: str | None = None,
        storage: Literal["memory", "memmap"] = "memory",
        path: str | os.PathLike | None = None,
    ) -> None:
        options = {"seed": seed, "n_step": n_step, "gamma": gamma, "envs": envs}
        options |= {"single_copy": single_copy, "storage": storage, "path": path}
        super().__init__(capacity, fields, **options)

    def add(self, **transition) -> None:
        """Append one transition, or [n, ...] of them, in place of the oldest.

        An error lists all that is wrong, and nothing is added.
        """
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            self._append(transition)
        finally:
            lock.release()

    def sample(
        self,
        batch_size: int,
        batches: int | None = None,
        *,
        newest: int | Literal["since_last_sample"] = 0,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """Return a `Batch`, a dict of new arrays [batch_size, ...] or [batches, batch_size, ...].

        Its fields are attributes, too. "indices" are the slots. The last `newest` entries of each
        batch are the newest transitions, the newest last (combined experience replay);
        "since_last_sample" is how many were added since, at most `batch_size`. With `out`, a dict
        like the result, its arrays are filled instead. `library` is "numpy", "torch" (sharing
        memory) or "jax".
        """
        where = "ReplayBuffer.sample"
        lock = self._lock
        lock.acquire()  # half the cost of a `with`
        try:
            plan = self._plan(where, batch_size, batches)
            newest = self._count_newest(where, newest, batch_size)
            block, arrays = plan.allocate(where, out, library)
            rows, ring = self._rows, kernels().ring
            draw = (
                self._random,
                self._size,
                self._head,
                rows.capacity,
                plan.leading[-1],
                newest,
            )
            if self._n_step > 1 or self._successors:
                ring.draw(*draw, arrays["indices"].reshape(-1))
                self._gather(plan, block, arrays)
            else:
                ring.sample(*draw, block, plan.count, rows.packed, rows.stride, plan.table)
                if plan.large:
                    plan.gather_large(rows, block, arrays)
            self._sampled = self._added
            return plan.deliver(where, arrays, out, library)
        finally:
            lock.release()
