"""PyTorch tensors on the CPU are NumPy arrays on the same memory, wherever that is all they are."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from loopless.arrays.library import NUMPY, Library

Function = TypeVar("Function", bound=Callable)

_PASSED = frozenset({float, int, str, bool, type(None)})


def is_watched(torch) -> bool:
    """Whether anything but plain eager execution is going on: then tensors must stay tensors.

    Tracing (compile, make_fx, fake tensors), functional transforms and forward-mode derivatives
    all see operations on tensors only.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def as_numpy_on_cpu(function: Function) -> Function:
    """`function`, called with views of the tensors where no gradient, trace or device forbids it.

    Nothing is copied either way. Elsewhere the function sees the tensors themselves.
    """

    @functools.wraps(function)
    def wrapper(*args, **keywords):
        if args and args[0].__class__ is np.ndarray:
            return function(*args, **keywords)
        torch = sys.modules.get("torch")
        if torch is None or is_watched(torch):
            return function(*args, **keywords)
        gradients = torch.is_grad_enabled()
        try:
            views = [_view(torch, x, gradients) for x in args]
            named = {name: _view(torch, x, gradients) for name, x in keywords.items()}
        except _StayTensor:
            views, named = None, {}
        if views is None:
            return function(*args, **keywords)
        out = function(*views, **named)
        if isinstance(out, tuple):
            return tuple([torch.from_numpy(x) for x in out])
        return torch.from_numpy(out)

    return wrapper  # pyright: ignore[reportReturnType]


def eager(x) -> Any:
    """PyTorch, if `x` is a tensor of its plain eager execution; else None."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or is_watched(torch):
        return None
    return torch


def arrays(torch, fields) -> list | None:
    """The tensors among `fields` as arrays on their memory, gradients aside; None if one cannot."""
    try:
        return [_view(torch, x, False) for x in fields]
    except _StayTensor:
        return None


def on_host(library: Library, *fields) -> list | None:
    """Return the arrays as NumPy arrays on their own memory, or None where nobody may look at them.

    Numbers and None are returned as they are. PyTorch tensors are seen on the CPU, gradients aside,
    outside of traces and transforms; JAX arrays never.
    """
    if library is NUMPY:
        return list(fields)
    if library.name != "torch" or is_watched(library.xp):
        return None
    return arrays(library.xp, fields)


class _StayTensor(Exception):
    pass


def _view(torch, x, gradients: bool):
    if x.__class__ in _PASSED or isinstance(x, np.generic):
        return x
    if x.__class__ is not torch.Tensor and x.__class__ is not torch.nn.Parameter:
        raise _StayTensor  # libraries are mixed, or this is not about tensors at all
    if not x.is_cpu or (gradients and x.requires_grad):
        raise _StayTensor
    try:
        return x.numpy(force=True)  # detached if need be; also the faster spelling
    except (RuntimeError, TypeError):  # inside vmap and its kin, or of a dtype unknown to NumPy
        raise _StayTensor from None
