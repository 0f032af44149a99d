"""XLA on the CPU for our own programs, apart from the user's JAX.

Programs of a few microseconds lose as much again where XLA hands them to another thread, and
whether it does is fixed when a client of XLA is made. So ours have a client of their own, which
runs them in the calling thread, on one device, whatever the user's JAX is configured for.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from loopless.arrays import programs


@functools.cache
def device() -> Any:
    """Return the CPU that our programs run on."""
    from jaxlib import xla_client

    return xla_client.make_cpu_client(asynchronous=False, num_devices=1).local_devices()[0]


def compile(function: Callable) -> Callable:
    """Return a compiled function; call it, as `x64` says, with NumPy arrays."""
    place = SingleDeviceSharding(device())
    return jax.jit(function, in_shardings=place, out_shardings=place, keep_unused=False)


def x64():
    """Return the context in which our functions are traced and called: int64 stays int64."""
    return jax.enable_x64(True)


def keeping_programs():
    """Return the context in which what we compile is kept on disk, and nothing of the user's."""
    return programs.keeping(device())
