"""How callers' arrays reach the compiled kernels, and how results come back.

Compiled kernels take flat NumPy arrays. A PyTorch tensor on the CPU is looked at as a NumPy array
on the same memory, without a copy, wherever nothing but eager PyTorch is at work: not while a
program is traced, and not where PyTorch is to record a derivative. This file is the only place
where that is decided. Large results are written to memory that earlier results no longer use.
"""

import functools
import math
import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from loopless.arrays.library import NUMBER, NUMPY, Library

Function = TypeVar("Function", bound=Callable)

_NOT_ARRAYS = frozenset({float, int, str, bool, type(None)})


def is_traced(torch) -> bool:
    """Return whether anything but plain eager execution is going on: then tensors stay tensors.

    Tracing (compile, make_fx, fake tensors), functional transforms and forward-mode derivatives
    all see operations on tensors only.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_compiling() -> bool:
    """Return whether torch.compile is looking at what is called."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def eager_torch(x) -> Any:
    """Return PyTorch if `x` is one of its tensors and nothing is traced, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or is_traced(torch):
        return None
    return torch


def numpy_views(torch, fields: Iterable, *, detach: bool = True) -> list | None:
    """Return the fields with NumPy views in place of tensors, or None if a tensor has no view.

    With `detach` gradients are ignored; without it a tensor that requires a gradient has no view.
    Numbers, strings and None pass as they are. For eager execution only.
    """
    views = []
    for x in fields:
        if x.__class__ in _NOT_ARRAYS or isinstance(x, np.generic):
            views.append(x)
            continue
        if x.__class__ is not torch.Tensor and x.__class__ is not torch.nn.Parameter:
            return None  # libraries are mixed, or this is not about tensors at all
        if not x.is_cpu or (x.requires_grad and not detach):
            return None
        try:
            views.append(x.numpy(force=True))  # detached if need be; also the faster spelling
        except (RuntimeError, TypeError):  # inside vmap, or of a dtype unknown to NumPy
            return None
    return views


def on_host(library: Library, *fields) -> list | None:
    """Return the fields as NumPy arrays on the same memory, or None if values cannot be looked at.

    Tensors are looked at only on the CPU and outside of traces, without their gradients; JAX arrays
    never.
    """
    if library is NUMPY:
        return list(fields)
    if library.name != "torch" or is_traced(library.xp):
        return None
    return numpy_views(library.xp, fields)


def as_numpy_on_cpu(function: Function) -> Function:
    """Return `function`, called with NumPy views of eager CPU tensors; its results are tensors.

    Nothing is copied either way. Where a gradient is to be recorded, a program is traced or a
    device is not the CPU, the function sees the tensors themselves.
    """

    @functools.wraps(function)
    def wrapper(*args, **keywords):
        if args and args[0].__class__ is np.ndarray:
            return function(*args, **keywords)
        count, names = len(args), tuple(keywords)

        def call(*fields):
            return function(*fields[:count], **dict(zip(names, fields[count:], strict=True)))

        return call_on_numpy(call, (*args, *keywords.values()))

    return wrapper  # pyright: ignore[reportReturnType]


def call_on_numpy(function: Callable, fields: tuple) -> Any:
    """Return function(*fields), by way of NumPy views of tensors as in `as_numpy_on_cpu`."""
    torch = None if fields[0].__class__ is np.ndarray else sys.modules.get("torch")
    if torch is None or is_traced(torch):
        return function(*fields)
    views = numpy_views(torch, fields, detach=not torch.is_grad_enabled())
    if views is None:
        return function(*fields)
    out = function(*views)
    if isinstance(out, tuple):
        return tuple([torch.from_numpy(x) for x in out])
    return torch.from_numpy(out)


def with_gradients(compute: Callable, options: tuple, fields: tuple, inputs: tuple) -> tuple:
    """Return the outputs of `compute(*options, derivatives, *fields)`, the first differentiable.

    `compute` returns outputs, and derivatives of the first by each of `inputs` if `derivatives` is
    true, else (). `derivatives` is true where eager PyTorch records a gradient; JAX and traces
    differentiate the computation itself.
    """
    torch = None if fields[0].__class__ is np.ndarray else eager_torch(fields[0])
    if torch is None:
        return compute(*options, False, *fields)[0]
    records = torch.is_grad_enabled() and any(map(requires_grad, inputs))
    views = numpy_views(torch, fields)
    if views is None:
        with torch.no_grad():
            outs, gradients = compute(*options, records, *fields)
    else:
        outs, gradients = compute(*options, records, *views)
        outs, gradients = map(torch.from_numpy, outs), map(torch.from_numpy, gradients)
    if not records:
        return tuple(outs)
    first, *others = outs
    return _attach()(first, tuple(gradients), inputs), *others


def requires_grad(x) -> bool:
    """Return whether PyTorch records derivatives by `x`; what is no tensor is refused later."""
    return getattr(x, "requires_grad", False)


@functools.cache
def _attach() -> Callable:
    from loopless.arrays import torch_gradients

    return torch_gradients.attach


def flat(x: np.ndarray, dtype) -> np.ndarray:
    """Return `x` flat, contiguous, writable and of `dtype`; a copy only where it must be one."""
    # Numba compiles read-only arrays anew; a rare copy is cheaper than a rare compilation.
    if x.dtype != dtype or not x.flags.writeable:
        x = x.astype(dtype)
    return x.ravel()


def flat_or_number(x, shape: tuple[int, ...], dtype):
    """Return a number as a scalar of `dtype`, or an array broadcast to `shape` and flat."""
    if isinstance(x, NUMBER):
        return number_of(x, dtype)
    return flat(np.broadcast_to(x, shape), dtype)


@functools.lru_cache(maxsize=64)
def number_of(x: float, dtype: np.dtype):
    """Return a number as a NumPy scalar."""
    return dtype.type(x)


# The operating system zeroes fresh pages on first touch, which for large results costs more than
# the scan itself. A training loop drops its last results before or soon after it asks for the next,
# so a few blocks are kept and handed out again: a block is free when nothing but this list refers
# to it, since every view of an array refers to its owner.

SMALLEST = 1 << 17  # bytes; malloc recycles smaller blocks itself
BLOCKS = 8
BYTES = 256 << 20  # at most so much is kept

_blocks: list[np.ndarray] = []
_lock = Lock()


def _references(blocks: list[np.ndarray], place: int) -> int:
    return sys.getrefcount(blocks[place])


# Interpreters differ in how many references a call itself holds, so the count of a block that only
# its list refers to is measured, not assumed.
_FREE = _references([np.empty(1, np.uint8)], 0)
# Without the interpreter's lock a count proves nothing.
_COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array; a large one reuses the memory of earlier results."""
    size = math.prod(shape) * dtype.itemsize
    if not SMALLEST <= size <= BYTES // 2:
        return np.empty(shape, dtype)
    # Never waits: a fork or a signal may find the lock held by a thread that will not go on.
    if not _COUNTED or not _lock.acquire(blocking=False):
        return np.empty(shape, dtype)
    try:
        block = _take(size)
        _blocks.append(block)
        while len(_blocks) > BLOCKS or sum(b.nbytes for b in _blocks) > BYTES:
            del _blocks[0]
    finally:
        _lock.release()
    return block.view(dtype).reshape(shape)


def _take(size: int) -> np.ndarray:
    for place in reversed(range(len(_blocks))):  # the block used last is still in the caches
        if _blocks[place].nbytes == size and _references(_blocks, place) == _FREE:
            return _blocks.pop(place)
    return np.empty(size, np.uint8)
