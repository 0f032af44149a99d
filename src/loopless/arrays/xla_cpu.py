"""Numba kernels inside compiled JAX programs on the CPU: XLA calls them itself, without Python.

Nothing is copied, and `jit`, `grad`, `vmap` and `scan` work as for any other operation. XLA hands a
C function one pointer, to a call frame of 64-bit words that jaxlib's own header describes
(`xla/ffi/api/c_api.h`, version 0). Users need no C compiler, so the header itself cannot be used:
the frame is read by word offsets. Operands and results are memory with a shape; a list of integers
holds the call's other arguments. Leading axes are further rows, so that `vmap` makes a larger call.

When a handler is registered, XLA asks for the version that it was written for. If the major
versions differ, XLA refuses the handler, `register` returns None, and the program is made of XLA's
operations alone. Within a major version the layout may only grow at its end. After an upgrade of
jaxlib, run tests/arrays/test_xla_cpu.py first. Imported on the first call only.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import ctypes
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numba import carray, types  # pyright: ignore[reportPrivateImportUsage]
from numba.extending import intrinsic
from numba.extending import register_jitable as jitable

from loopless.compiled.jit import c_function, digest

SWITCH = "LOOPLESS_NATIVE"  # the environment variable that leaves everything to XLA
SIGNATURE = types.int64(types.CPointer(types.int64))  # of a handler: 0 is success
VERSION = 0, 1  # the oldest version of the interface that has all that is read here

# Words of a frame, of a list of buffers in it, of a buffer, and of a list of integers.
_EXTENSION, ARGUMENTS, RESULTS, _ATTRIBUTES = 1, 9, 14, 20
_DATA, _RANK, _SHAPE = 3, 4, 5
_INTEGERS = 2
_KIND, _METADATA = 1, 3  # of an extension
_ASKS = 1  # its kind when XLA asks for the version
_NUMBERS = 3  # the word of the answer


def is_on() -> bool:
    """Return whether kernels of ours may be part of XLA programs: not with LOOPLESS_NATIVE=0.

    The variable is read when a program is traced; programs that exist already stay as they are.
    """
    setting = os.environ.get(SWITCH, "1").strip()
    if setting not in ("0", "1"):
        raise ValueError(
            f"{SWITCH} must be 0 (XLA compiles everything itself) or 1; received {setting!r}."
        )
    return setting == "1"


@intrinsic
def _pointer(typing, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


@jitable
def words(address, count):
    """Return `count` 64-bit words of memory from `address` on."""
    return carray(_pointer(address), (count,), np.int64)


@jitable
def is_question(frame):
    """Return whether XLA only asks for the version of the interface, after writing the answer."""
    address = carray(frame, (2,))[_EXTENSION]
    if address == 0:
        return False
    extension = words(address, 4)
    if extension[_KIND] & 0xFFFFFFFF != _ASKS:
        return False
    metadata = words(extension[_METADATA], 5)
    metadata[_NUMBERS] = VERSION[0] | VERSION[1] << 32
    metadata[_NUMBERS + 1] = 0  # no traits
    return True


@jitable
def _buffer(frame, group, number):
    return words(words(carray(frame, (21,))[group], number + 1)[number], 6)


@jitable
def _rows(buffer, axes):
    """Return a buffer's rows, the shape of its last axes, and its memory."""
    rank = buffer[_RANK]
    shape = words(buffer[_SHAPE], rank)
    rows = 1
    for axis in range(rank - axes):
        rows *= shape[axis]
    return rows, shape[rank - axes :], _pointer(buffer[_DATA])


@jitable
def vector(frame, group, number, dtype):
    """Return a buffer [...] as [rows]."""
    rows, _, data = _rows(_buffer(frame, group, number), 0)
    return carray(data, (rows,), dtype)


@jitable
def matrix(frame, group, number, dtype):
    """Return a buffer [..., n] as [rows, n]."""
    rows, shape, data = _rows(_buffer(frame, group, number), 1)
    return carray(data, (rows, shape[0]), dtype)


@jitable
def integers(frame, count):
    """Return the integers that the call passes beside its arrays."""
    attribute = words(words(carray(frame, (21,))[_ATTRIBUTES], 1)[0], 3)
    return words(attribute[_INTEGERS], count)


def register(name: str, handler: Callable) -> str | None:
    """Compile a handler, a function of one frame, for XLA; return its name there.

    The name ends with a digest of all code behind it: a program that was compiled earlier and kept
    on disk never calls another version of the handler. None if XLA does not accept it.
    """
    name = f"{name}_{digest(handler)[:16]}"
    if name in _ALIVE:
        return name
    compiled: Any = c_function(SIGNATURE)(handler)
    try:
        jax.local_devices(backend="cpu")  # XLA checks handlers only if there is a device
        jax.ffi.register_ffi_target(name, _capsule(compiled.address), platform="cpu")
    except RuntimeError:  # no CPU, or another version of the interface
        return None
    _ALIVE[name] = compiled
    return name


_ALIVE: dict[str, Any] = {}  # XLA keeps no reference to a handler


def _capsule(address: int) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(address, None, None)
