"""Scans and recipes on PyTorch tensors, differentiable as often as you like.

`affine_scan` works on [outer, T, inner]. On the CPU the compiled kernel runs on the tensors' own
memory, on a GPU the Triton kernel, and anywhere else the scan of `torch_blocked`. The
backward pass is the same scan walking the other way, so that second derivatives need no more code.

PyTorch has two ways to add a function and neither does all: a registered operator can be traced by
torch.compile but not by torch.func, an autograd.Function the other way round. Both stand here, on
one forward and one backward formula.

`estimate` computes a whole recipe on the CPU by its fused kernel, and its gradient by the fused
kernel of the adjoint, where the recipe is linear in its floats.
"""

import contextlib
import functools
import importlib.util

import numpy as np
import torch
from torch import Tensor

from loopless.arrays.dispatch import empty, is_traced, requires_grad
from loopless.arrays.library import NUMBER, library_of
from loopless.arrays.outputs import addresses_apart
from loopless.arrays.scan import numpy as numpy_scan
from loopless.arrays.scan.torch_blocked import blocked_scan, shift


def affine_scan(a: Tensor, b: Tensor, init: Tensor, *, reverse: bool, lagged: bool) -> Tensor:
    """Return x_t = a_t·x_{t±1} + b_t; lagged, its adjoint y_t = b_t + a_{t∓1}·y_{t∓1}.

    a and b are [outer, T, inner], init is [outer, inner]. Lagged, init is what the first row of
    the walk adds to b.
    """
    if is_program():
        return _operator(a, b, init, reverse, lagged)
    return _Function.apply(a, b, init, reverse, lagged)  # pyright: ignore[reportReturnType]


def _forward(a: Tensor, b: Tensor, init: Tensor, reverse: bool, lagged: bool) -> Tensor:
    if b.device.type == "cpu":
        try:
            return _numba(a, b, init, reverse, lagged)
        except RuntimeError:  # batched gradients have no memory of their own
            return blocked_scan(a, b, init, reverse=reverse, lagged=lagged)
    if b.device.type == "cuda" and _has_triton():
        from loopless.arrays.scan import triton

        return triton.affine_scan(a, b, init, reverse=reverse, lagged=lagged)
    return blocked_scan(a, b, init, reverse=reverse, lagged=lagged)


def _setup_context(ctx, inputs, output) -> None:
    a, _, init, ctx.reverse, ctx.lagged = inputs
    ctx.save_for_backward(a, init, output)
    ctx.save_for_forward(a, init, output)


def _backward(ctx, x_bar):
    a, init, x = ctx.saved_tensors
    reverse, lagged = ctx.reverse, ctx.lagged
    # The adjoint of a plain scan is the lagged scan in the other direction, and vice versa.
    y = affine_scan(a, x_bar, torch.zeros_like(init), reverse=not reverse, lagged=not lagged)
    a_bar = init_bar = None
    if ctx.needs_input_grad[0]:
        if lagged:
            a_bar = x * shift(y, torch.zeros_like(init), forward=reverse)
        else:
            a_bar = y * shift(x, init, forward=not reverse)
    if ctx.needs_input_grad[2]:
        first = -1 if reverse else 0  # the first row of this walk
        init_bar = y[:, first] if lagged else a[:, first] * y[:, first]
    return a_bar, y, init_bar, None, None


def _jvp(ctx, a_dot, b_dot, init_dot, _reverse, _lagged):
    """Return the tangent, which is the same scan of other coefficients."""
    a, init, x = ctx.saved_tensors
    reverse, lagged = ctx.reverse, ctx.lagged
    b_dot = torch.zeros_like(x) if b_dot is None else b_dot
    if a_dot is not None and lagged:
        b_dot = b_dot + shift(a_dot * x, torch.zeros_like(init), forward=not reverse)
    elif a_dot is not None:
        b_dot = b_dot + a_dot * shift(x, init, forward=not reverse)
    init_dot = torch.zeros_like(init) if init_dot is None else init_dot
    return affine_scan(a, b_dot, init_dot, reverse=reverse, lagged=lagged)


def _vmap(info, in_dims, a, b, init, reverse, lagged):
    size = info.batch_size
    a, b, init = (
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip((a, b, init), in_dims[:3], strict=True)
    )
    x = affine_scan(
        a.flatten(0, 1), b.flatten(0, 1), init.flatten(0, 1), reverse=reverse, lagged=lagged
    )
    return x.unflatten(0, (size, -1)), 0


class _Function(torch.autograd.Function):
    forward = staticmethod(_forward)
    setup_context = staticmethod(_setup_context)
    backward = staticmethod(_backward)  # pyright: ignore[reportAssignmentType]
    jvp = staticmethod(_jvp)  # pyright: ignore[reportAssignmentType]
    vmap = staticmethod(_vmap)  # pyright: ignore[reportAssignmentType]


_operator = torch.library.custom_op("loopless::affine_scan", mutates_args=())(_forward)
_operator.register_autograd(_backward, setup_context=_setup_context)


@_operator.register_fake
def _(a, b, init, reverse, lagged):
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def _numba(a: Tensor, b: Tensor, init: Tensor, reverse: bool, lagged: bool) -> Tensor:
    from loopless.compiled import scan as compiled_scan

    out = torch.empty(b.shape, dtype=b.dtype)
    outer, steps, inner = b.shape
    a_, b_, init_, out_ = (x.detach().contiguous().numpy().ravel() for x in (a, b, init, out))
    compiled_scan.affine(outer, steps, inner, a_, b_, init_, out_, reverse, lagged)
    return out


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def is_program() -> bool:
    """Return whether a program is being made: by torch.compile, make_fx or fake tensors."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def can_fuse(floats, numbers) -> bool:
    """Return whether `estimate` takes these tensors: on the CPU, no gradient of the numbers."""
    if not floats[0].is_cpu or is_traced(torch):
        return False
    return not any(x.requires_grad for x in numbers if not isinstance(x, NUMBER))


def estimate(recipe, compose, dtype, axis, floats, flags, numbers, valid):
    """Return the recipe's outputs, with a gradient by the floats.

    When the backward pass is itself to be differentiated, it uses `compose` (of `arrays.scan`).
    """
    outs = run(recipe, dtype, axis, floats, flags, numbers, valid)
    call = recipe.adjoint, compose, axis, numbers, valid is not None, False
    tensors = *flags, *[x for x in numbers if isinstance(x, Tensor)]
    return _Fused.apply((outs, call, tensors if valid is None else (*tensors, valid)), *floats)


def estimate_plain(recipe, compose, floats, flags, numbers, valid, time_axis, out):
    """Return what `estimate` does for plain tensors of two axes and one dtype; None for others.

    As in `numpy.estimate_plain`, all that matters is tested at once, so that a small rollout does
    not spend its time in checks.
    """
    records = torch.is_grad_enabled() and any(map(requires_grad, floats))
    if records and (recipe.adjoint is None or out is not None):
        return None
    outs = _run_plain(recipe, floats, flags, numbers, valid, time_axis, out)
    if outs is None or not records:
        return outs
    call = recipe.adjoint, compose, time_axis, numbers, valid is not None, True
    return _Fused.apply((outs, call, flags if valid is None else (*flags, valid)), *floats)


def _run_plain(recipe, floats, flags, numbers, valid, time_axis, out=None):
    first = floats[0]
    shape, dtype = first.shape, first.dtype
    width = NUMPY_DTYPES.get(dtype)
    if width is None or len(shape) != 2 or not first.numel():
        return None
    try:
        floats = _addresses(floats, shape, dtype)
        flags = _addresses(flags if valid is None else (*flags, valid), shape, torch.bool)
    except RuntimeError:  # batched gradients and sparse tensors have no memory of their own
        return None
    for x in numbers:
        if x.__class__ is not float or not 0.0 <= x <= 1.0:
            return None
    sizes = numpy_scan.plain_sizes(shape, time_axis)
    if sizes is None or floats is None or flags is None:
        return None
    written = None if out is None else _plain_out(recipe, out, shape, dtype, width, floats, flags)
    if valid is not None:
        *flags, valid = flags
        flags = tuple(flags)
    if out is not None:
        if written is None:
            return None
        numpy_scan.kernel(recipe, sizes[2])(*sizes, valid, floats, flags, numbers, written)
        return out
    outs = tuple([empty(shape, width) for _ in range(recipe.outputs)])
    numpy_scan.kernel(recipe, sizes[2])(*sizes, valid, floats, flags, numbers, outs)
    return tuple([torch.from_numpy(out) for out in outs])


def _plain_out(recipe, out, shape, dtype, width, floats, flags) -> tuple | None:
    """Return what the kernel takes to write to plain tensors, or None if one does not fit."""
    if out.__class__ is not tuple or len(out) != recipe.outputs or any(map(requires_grad, out)):
        return None
    addresses = _addresses(out, shape, dtype)
    size = shape[0] * shape[1]
    if addresses is None:
        return None
    if not addresses_apart(addresses, size * width.itemsize, floats, flags, size):
        return None
    return _KINDS[width], *addresses


NUMPY_DTYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
# Addresses have no dtype; an array in front of them says what lies there.
_KINDS = {dtype: np.zeros((1, 1), dtype) for dtype in NUMPY_DTYPES.values()}


def _addresses(tensors, shape, dtype) -> tuple[int, ...] | None:
    """Return where tensors lie in memory, or None if one is not plain or not of this kind."""
    addresses = []
    for x in tensors:
        if x.__class__ is not Tensor and x.__class__ is not torch.nn.Parameter:
            return None
        if x.dtype is not dtype or x.shape != shape or not x.is_cpu:
            return None
        if not x.is_contiguous() or x.is_neg():  # a negative view's memory has the other sign
            return None
        addresses.append(x.data_ptr())
    return tuple(addresses)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, *floats):
        outs, ctx.call, tensors = call
        # Saved the official way, so that flags overwritten before backward are an error.
        ctx.save_for_backward(*tensors)
        ctx.dtypes = None if ctx.call[-1] else [x.dtype for x in floats]
        return outs

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        adjoint, compose, axis, numbers, masked, plain = ctx.call
        tensors = ctx.saved_tensors
        eager = not torch.is_grad_enabled() and not is_traced(torch)
        if eager and plain and (out := _run_adjoint(adjoint, gradients, tensors, numbers, axis)):
            return None, *out
        flags, (*tensors,) = tensors[:2], tensors[2:]
        valid = tensors.pop() if masked else None
        tensors, dtype, out = iter(tensors), gradients[0].dtype, None
        numbers = tuple([next(tensors) if isinstance(x, Tensor) else x for x in numbers])
        if eager:
            with contextlib.suppress(RuntimeError):  # batched gradients have no memory of their own
                out = run(adjoint, dtype, axis, gradients, flags, numbers, valid)
        if out is None:
            library = library_of(gradients[0])
            out = compose(adjoint, library, dtype, axis, gradients, flags, numbers, valid)
        dtypes = ctx.dtypes or [dtype] * len(out)
        needed = zip(out, dtypes, ctx.needs_input_grad[1:], strict=True)
        return None, *[x.to(dtype) if need else None for x, dtype, need in needed]


def _run_adjoint(adjoint, gradients, flags, numbers, axis):
    """Return what `_run_plain` does, if the forward pass was plain: flags need no second look."""
    first = gradients[0]
    addresses = []
    try:
        for x in gradients:
            if x.__class__ is not Tensor or not x.is_contiguous() or x.is_neg():
                return None
            addresses.append(x.data_ptr())
        terminated, truncated, *valid = [x.data_ptr() for x in flags]
    except RuntimeError:  # batched gradients have no memory of their own
        return None
    shape, width = first.shape, NUMPY_DTYPES[first.dtype]
    sizes = numpy_scan.plain_sizes(shape, axis)
    assert sizes is not None  # the forward pass had the same axis
    outs = tuple([empty(shape, width) for _ in range(adjoint.outputs)])
    numpy_scan.kernel(adjoint, sizes[2])(
        *sizes,
        valid[0] if valid else None,
        tuple(addresses),
        (terminated, truncated),
        numbers,
        outs,
    )
    return [torch.from_numpy(out) for out in outs]


def run(recipe, dtype, axis, floats, flags, numbers, valid):
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def view(x):
        return x.to(wide).numpy(force=True) if isinstance(x, torch.Tensor) else x

    floats, numbers = [view(x) for x in floats], [view(x) for x in numbers]
    numbers = [x if isinstance(x, NUMBER) or x.ndim else x.item() for x in numbers]
    flags = [x.numpy(force=True) for x in flags]
    valid = None if valid is None else valid.numpy(force=True)
    outs = numpy_scan.estimate(recipe, floats[0].dtype, axis, floats, flags, numbers, valid)
    return tuple([torch.from_numpy(out).to(dtype) for out in outs])
