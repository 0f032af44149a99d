"""How a buffer outlives its process: saved to one file, or lying in files from the start.

The ring buffers and the episodic one inherit this. They say what their state is; here stands when
it is written and read. Imports `files`; `memmap` for buffers in files. Tests:
`tests/replay/test_files.py`, `tests/replay/test_memmap.py`.
"""

from collections.abc import Mapping
from typing import Any, Self

from loopless.replay.storage import file as files


class Kept:
    """What a buffer can do with its state.

    A child has `_storage` and `state()` and `restore()`; `_settings()`, which its constructor
    takes; `_beside()`, what of its state is not in the files of its rows; `_used()`, how many of
    these rows may hold something; and `_reopen()`, which takes over what `_beside()` gave, from
    then on to be rolled back to.
    """

    _storage: Any

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def save(self, path) -> None:
        """Write the buffer to one file, whole or not at all."""
        files.write(path, type(self).__name__, self._settings(), self.state())

    @classmethod
    def load(cls, path) -> Self:
        """The buffer that `save` wrote, generator included."""
        settings, state = files.read(path, cls.__name__)
        buffer = cls(**settings)
        buffer.restore(state)
        return buffer

    def flush(self) -> None:
        """Make permanent, in the files of a buffer with storage="memmap", all that it holds now.

        After a crash `open` finds what the last flush left, all of it and nothing else.
        """
        self._storage.flush(type(self).__name__, self._settings(), self._beside(), self._used())

    @classmethod
    def open(cls, path) -> Self:
        """The buffer in the folder `path`, as it was flushed last, generator included."""
        from loopless.replay.storage.memmap import MemMap

        where = f"{cls.__name__}.open"
        storage = MemMap(where, path, new=False)
        try:
            settings, state = storage.read(cls.__name__)
            buffer = cls(**settings, storage=storage)
            buffer._reopen(where, state)
            storage.roll_back(buffer._used())
        except BaseException:
            storage.close()
            raise
        return buffer

    def close(self) -> None:
        """Flush a buffer with storage="memmap" and let others open it; it is not used again."""
        if self._storage.watched and not self._storage.closed:
            self.flush()
            self._storage.close()
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        # Copied one by one, the views of the fields would no longer be views of the rows. A copy
        # lies in memory, wherever its original does.
        return self._settings(), self.state()

    def __setstate__(self, copied: Any) -> None:
        settings, state = copied
        type(self).__init__(self, **settings)
        self.restore(state)

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def _beside(self) -> dict[str, Any]:
        raise NotImplementedError

    def _used(self) -> int:
        raise NotImplementedError

    def _reopen(self, where: str, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        raise NotImplementedError
