"""A device buffer for a program that runs on the host: a state, and compiled calls that change it.

Every call that changes the state donates the old one, so that adding to a buffer of any size writes
the new rows and copies nothing.
"""

from functools import partial
from typing import Any

import jax


class Stored:
    """A device buffer together with its state.

        memory = Stored(RingBuffer(100_000, fields))
        memory.add({"obs": obs, ...})                     # compiled once for each shape
        batch = memory.sample(key, 256)
        memory.state = train_chunk(memory.state, ...)     # which may donate it in turn

    The methods are those of the buffer's handle, without the state. `sample` compiles once for
    each shape and each value of its options; only beta may change freely.
    """

    def __init__(self, buffer: Any, state: Any = None) -> None:
        self.buffer = buffer
        self.state = buffer.init() if state is None else state
        self._enough = 0  # a batch size that was possible; it stays so, as no buffer shrinks

    def __repr__(self) -> str:
        return f"Stored({self.buffer!r})"

    def add(self, *rows: Any, **options: Any) -> None:
        """Call the buffer's `add`; on an error nothing is added."""
        self.state = _change("add", self.buffer, self.state, rows, options)

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Call the buffer's `update_priorities`; on an error nothing changes."""
        pair = (indices, priorities)
        self.state = _change("update_priorities", self.buffer, self.state, pair, {})

    def sample(self, key: Any, batch_size: int, batches: int | None = None, **options: Any) -> Any:
        """Return what the buffer's `sample` returns; raise while it holds too little."""
        traced = {"beta": options.pop("beta")} if "beta" in options else {}
        static = (("batch_size", batch_size), ("batches", batches), *sorted(options.items()))
        if isinstance(batch_size, int) and batch_size > self._enough:
            if not self.buffer.can_sample(self.state, batch_size):
                raise RuntimeError(
                    f"{type(self.buffer).__name__}.sample: the buffer holds too little for "
                    f"batch_size={batch_size:,}. Add more first, or draw smaller batches."
                )
            self._enough = batch_size
        return _draw(self.buffer, static, self.state, key, traced)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _change(method: str, buffer: Any, state: Any, arguments: Any, options: Any) -> Any:
    return getattr(buffer, method)(state, *arguments, **options)


@partial(jax.jit, static_argnums=(0, 1))
def _draw(buffer: Any, static: Any, state: Any, key: Any, traced: Any) -> Any:
    return buffer.sample(state, key, **dict(static), **traced)
