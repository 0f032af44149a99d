"""Results that are written to arrays of the caller (`out=`), which overlap with nothing else.

`write` is the general way. The fast paths of `arrays.scan` write to plain arrays themselves, and
ask `apart` and `addresses_apart` first.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from loopless.arrays.dispatch import call_on_numpy, is_traced, requires_grad
from loopless.arrays.library import NUMPY, Library, library_of


def write(function: str, compute: Callable, fields: tuple, out: Any) -> tuple:
    """Return `out`, a tuple of arrays, after the results of `compute(*fields)` were written to it.

    Nothing is written unless everything fits.
    """
    library = library_of(fields[0])
    if library is not None:
        _check_library(function, library, fields)
    outs = call_on_numpy(compute, fields)  # which refuses wrong fields, too
    if not isinstance(out, tuple):
        raise TypeError(
            f"{function}: out is a {type(out).__name__}; it must be a tuple of {len(outs)} arrays, "
            f"one for each result."
        )
    if len(out) != len(outs):
        raise ValueError(
            f"{function}: out has {len(out)} arrays, but there are {len(outs)} results."
        )
    assert library is not None  # else `compute` has refused the fields
    for place, (array, result) in enumerate(zip(out, outs, strict=True)):
        _check_array(function, library, f"out[{place}]", array, result)
    inputs = [x for x in fields if library_of(x) is not None]
    for place, array in enumerate(out):
        if any(_overlap(library, array, x) for x in (*inputs, *out[:place])):
            raise ValueError(
                f"{function}: out[{place}] overlaps in memory with an argument or another array of "
                f"out. Pass arrays of their own."
            )
    for array, result in zip(out, outs, strict=True):
        array[...] = result
    return out


def _check_library(function: str, library: Library, fields: tuple) -> None:
    if library is NUMPY:
        return
    if library.name == "jax":
        raise TypeError(
            f"{function}: out is for NumPy arrays and PyTorch tensors; a JAX array cannot be "
            f"written to. Leave it out."
        )
    torch = library.xp
    if is_traced(torch):
        raise TypeError(
            f"{function}: out cannot be used while a program is traced or transformed. Leave it "
            f"out."
        )
    if torch.is_grad_enabled() and any(map(requires_grad, fields)):
        raise ValueError(
            f"{function}: out cannot be used where a gradient is recorded, and an argument "
            f"requires one. Use torch.no_grad(), or detach the arguments."
        )


def _check_array(function: str, library: Library, name: str, x: Any, result: Any) -> None:
    if library_of(x) is not library:
        raise TypeError(
            f"{function}: {name} is a {type(x).__name__}; the arguments are {library.name} arrays, "
            f"and so must be the arrays of out."
        )
    if tuple(x.shape) != tuple(result.shape) or x.dtype != result.dtype:
        raise ValueError(
            f"{function}: {name} is {x.dtype} of shape {tuple(x.shape)}; the result is "
            f"{result.dtype} of shape {tuple(result.shape)}."
        )
    if library is NUMPY:
        if not x.flags.writeable:
            raise ValueError(f"{function}: {name} is read-only.")
    elif x.requires_grad or x.device != result.device or not library.is_dense(x):
        raise ValueError(
            f"{function}: {name} must be a dense tensor on {result.device} that requires no "
            f"gradient."
        )


def _overlap(library: Library, x: Any, y: Any) -> bool:
    if library is not NUMPY:
        if not (x.is_cpu and y.is_cpu):  # what cannot be looked at overlaps if it may
            return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        x, y = (
            (z.view(library.xp.int16) if z.dtype == library.xp.bfloat16 else z).numpy(force=True)
            for z in (x, y)
        )
    return np.may_share_memory(x, y) and np.shares_memory(x, y)


def apart(out: tuple, inputs: Iterable[np.ndarray]) -> bool:
    """Return whether plain NumPy arrays overlap neither with inputs nor with each other."""
    others = list(inputs)
    for x in out:
        for y in others:
            # The memory of an array that owns it is another's only if that one says so.
            if x is y or y.base is x or (x.base is not None and np.may_share_memory(x, y)):
                return False
        others.append(x)
    return True


@functools.lru_cache(maxsize=64)
def addresses_apart(
    out: tuple[int, ...], out_bytes: int, floats: tuple[int, ...], flags: tuple[int, ...], size: int
) -> bool:
    """Return whether blocks of memory overlap neither with inputs nor with each other.

    Those of `out` and `floats` have `out_bytes` each, those of `flags` have `size`.
    """
    blocks = [(x, out_bytes) for x in floats] + [(x, size) for x in flags]
    for x in out:
        if any(x < y + n and y < x + out_bytes for y, n in blocks):
            return False
        blocks.append((x, out_bytes))
    return True
