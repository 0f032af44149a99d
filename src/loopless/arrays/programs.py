"""Compiled JAX programs, kept on disk between processes.

JAX has a cache of compiled programs, but its files are not written whole, a stump is never
replaced, and its limit of size needs a further package. So JAX's cache is used with a store of ours
behind it (`files/cache.py`). JAX has no public way to be given one: the names `_STATE` of its
module `compilation_cache` are set here, and nothing else of ours knows them. Where a version of JAX
lacks them, nothing is kept, and that is said.

`keep` is for a process of ours, such as `loopless train`: all its programs are kept. `keeping` is
for a process of the user's: what this thread compiles inside the block is kept, and nothing else. A
cache that the user has given to JAX (JAX_COMPILATION_CACHE_DIR) is used in place of ours.
"""

import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache as once
from typing import Any

import jax
import numpy as np

from loopless.files import atomic
from loopless.files import cache as files

_STATE = ("_cache", "_cache_initialized", "_cache_checked", "_cache_used")
Say = Callable[[str], None]


class _Kept:
    """What JAX asks for programs, and gives programs to."""

    def __init__(self, store: files.Store, say: Say) -> None:
        self.store, self._path, self._say = store, store.folder, once(say)
        self._served: set[str] = set()
        self.rejected = 0

    def get(self, key: str) -> bytes | None:
        data = self.store.get(key)
        if data is not None:
            self._served.add(key)
        return data

    def put(self, key: str, data: bytes) -> None:
        if key in self._served:  # JAX has read this entry, and compiled all the same
            self.rejected += 1
            self._say("cache: JAX did not take a program that it had stored, and compiled it anew.")
        self.store.put(key, data)
        if self.store.failure:
            self._say(f"cache: new programs are not kept: {self.store.failure}")


def keep(is_on: bool, say: Say) -> None:
    """Keep all programs of this process on disk; with `is_on` false none, not even in JAX's cache.

    `say` is told in words, once, if programs cannot be kept.
    """
    if not is_on:
        jax.config.update("jax_enable_compilation_cache", False)
    elif kept := _open(say):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        before = _install(kept)
        if not _takes_back(kept, jax.devices()[0], say):
            _set(before)


@contextmanager
def keeping(device: Any) -> Iterator[None]:
    """Keep the programs that this thread compiles in the block, which run on `device`."""
    kept = _kept_for(device)
    if kept is None:
        yield
        return
    with _ROUTER.open(kept):
        yield


@once
def _kept_for(device: Any) -> _Kept | None:
    def say(message: str) -> None:
        warnings.warn(f"loopless: {message}", RuntimeWarning, stacklevel=2)

    kept = _open(say)
    if kept is None:
        return None
    with _ROUTER.open(kept):
        return kept if _takes_back(kept, device, say) else None


class _Router:
    """Stands in for JAX's cache while a thread is in `keeping`.

    Other threads find what they would have found without us: a cache of the user's, or none.
    """

    def __init__(self) -> None:
        self._lock, self._threads, self._here = threading.Lock(), 0, threading.local()
        self._before: tuple = ()
        self._path = None

    @contextmanager
    def open(self, kept: _Kept) -> Iterator[None]:
        """Keep what this thread compiles in the block."""
        from jax._src import config

        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._before = _install(self)
        outer, self._here.kept = getattr(self._here, "kept", None), kept
        try:
            with config.persistent_cache_min_compile_time_secs(0.0):  # in this thread
                yield
        finally:
            self._here.kept = outer
            with self._lock:
                self._threads -= 1
                if self._threads == 0:
                    _set(self._before)

    def _choose(self) -> Any:
        return getattr(self._here, "kept", None) or self._before[0]

    def get(self, key: str) -> bytes | None:
        cache = self._choose()
        return None if cache is None else cache.get(key)

    def put(self, key: str, data: bytes) -> None:
        cache = self._choose()
        if cache is not None:
            cache.put(key, data)


_ROUTER = _Router()


def _open(say: Say) -> _Kept | None:
    """Return our store; None if it is off, or the user has another, or (which is said) unsafe."""
    from jax._src import compilation_cache

    try:
        theirs = getattr(jax.config, "jax_compilation_cache_dir", None)
        if theirs or not files.is_on():
            return None
        if not all(hasattr(compilation_cache, name) for name in _STATE):
            raise files.NoCache(f"the cache of JAX {jax.__version__} is another one than we know.")
        return _Kept(files.Store(files.open_folder()), say)
    except files.NoCache as reason:
        say(f"cache: compiled programs are not kept: {reason}")
        return None


def _install(cache: Any) -> tuple:
    """Make JAX use this cache; return what `_set` needs to undo it."""
    from jax._src import compilation_cache

    before = tuple(getattr(compilation_cache, name) for name in _STATE)
    _set((cache, True, True, True))
    return before


def _set(state: tuple) -> None:
    from jax._src import compilation_cache

    with compilation_cache._cache_initialized_mutex:
        for name, value in zip(_STATE, state, strict=True):
            setattr(compilation_cache, name, value)


# --- whether JAX takes back what it has stored ---------------------------------------------------


def _takes_back(kept: _Kept, device: Any, say: Say) -> bool:
    """Return whether JAX takes its own entries back, silently; if it does not, that is said.

    With some processors and versions it does not, or prints an error for each (jax#38445). That
    depends on the folder's name alone, so it is tried once for a folder, and written down there.
    """
    path = kept.store.folder / files.VERDICT
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8") == files.ACCEPTED
    complaint = _try_out(kept, device)
    with suppress(OSError):
        atomic.write_file(path, (complaint or files.ACCEPTED).encode(), flush=False)
    if complaint:
        say(f"cache: compiled programs are not kept: {complaint}")
    return not complaint


def _try_out(kept: _Kept, device: Any) -> str:
    """Store a small program and read it back; return what is wrong with that, in words."""
    number = jax.device_put(np.float32(1), device)

    def compile() -> None:
        def trial(x):
            return x * x + 2

        jax.jit(trial)(number).block_until_ready()

    compile()
    with _captured_errors() as text, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile()
    printed = [*text, *(str(warning.message) for warning in caught)]
    rejected, kept.rejected = kept.rejected, 0
    if not rejected and not printed:
        return ""
    detail = f" It says: {printed[0].strip()[:200]}" if printed else ""
    return f"JAX {jax.__version__} does not take back what it stores on this processor.{detail}"


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Yield a list that gets, after the block, what was written to standard error, if anything.

    XLA writes there by itself, past Python.
    """
    text: list[str] = []
    try:
        before = os.dup(2)
    except OSError:  # there is no standard error
        yield text
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text += filter(None, [file.read().decode(errors="replace")])
