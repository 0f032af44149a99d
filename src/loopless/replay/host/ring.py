"""A ring of transitions on the host, drawn from uniformly, the newest on demand.

Imports `refusals` and `transitions`. Twin: `reference/replay.py`. Tests:
`tests/replay/test_ring.py`.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal

from loopless.refusals import check_count, refuse
from loopless.replay.host.transitions import Ring, kernels


class ReplayBuffer(Ring):
    """A ring of transitions, drawn uniformly and with replacement.

        buffer = ReplayBuffer(100_000, {"obs": ((4,), np.float32), "action": ((), np.int64)})
        buffer.add(obs=obs, action=action)      # one transition, or [n, ...] of them
        batch = buffer.sample(256)              # {"obs": [256, 4], "action": [256], "indices"}

    With `n_step` > 1, `sample` gives R = Σ_{k<h} γ^k r_k as "reward", γ^h as "discount", and
    next_obs, terminated and truncated of the window's last row. h is n unless the window meets
    an end (terminated or truncated) or the newest row. A terminated window's discount is not 0:
    mask by `terminated`. Rows then are consecutive steps of `envs` interleaved streams, every
    `add` bringing one of each, and next_obs of an end is the true final observation.

    With `single_copy="obs"`, next_obs is not stored where it is the obs of the same stream's next
    row, which halves the bytes of images. `add` and `sample` give and take the same as ever.

    With `storage="memmap"` and a new folder `path`, rows lie in files there, more than memory
    holds. `flush` makes them permanent, `close` flushes, `ReplayBuffer.open(path)` goes on from
    the last flush, also after a crash. One process at a time writes.
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
        """Append one transition, or [n, ...] of them; the oldest give way.

        On an error, which lists all that is wrong, nothing is added.
        """
        self._append(transition)

    def sample(
        self,
        batch_size: int,
        batches: int | None = None,
        *,
        newest: int = 0,
        out: Mapping[str, Any] | None = None,
        library: str = "numpy",
    ) -> Any:
        """A dict of new arrays [batch_size, ...], or [batches, batch_size, ...], with "indices".

        The last `newest` of each batch are the newest transitions, the newest last (combined
        experience replay). With `out`, a dict like the result, its arrays are written instead.
        `library` is "numpy", "torch" (sharing memory) or "jax".
        """
        where = "ReplayBuffer.sample"
        plan = self._plan(where, batch_size, batches)
        if newest.__class__ is not int:
            refuse(where, check_count("newest", newest, 0))
        if not 0 <= newest <= batch_size:
            raise ValueError(f"{where}: newest={newest} is not from 0 to batch_size={batch_size}.")
        block, arrays = self._arrays(where, plan, out, library)
        rows, size, head = self._rows, self._size, self._head
        drawn = (self._random, size, head, rows.capacity, plan.leading[-1], int(newest))
        if self._n_step > 1 or self._successors:
            kernels().draw(*drawn, arrays["indices"].reshape(-1))
            self._gather(plan, block, arrays)
        else:
            kernels().sample(*drawn, block, plan.count, rows.packed, rows.stride, plan.table)
            if rows.large:
                indices = arrays["indices"].reshape(-1)
                rows.gather_large(arrays, indices, indices, ())
        return self._result(where, arrays, out, library)
