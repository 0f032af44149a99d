"""Scans and recipes on PyTorch tensors, differentiable as often as you like.

`affine_scan` works on [outer, T, inner]. On the CPU the compiled kernel runs on the tensors' own
memory, on a GPU the Triton kernel, and anywhere else a blocked scan in tensor operations. The
backward pass is the same scan walking the other way, so that second derivatives need no more code.

PyTorch has two ways to add a function and neither does all: a registered operator can be traced by
torch.compile but not by torch.func, an autograd.Function the other way round. Both stand here, on
one forward and one backward formula.

`estimate` computes a whole recipe on the CPU by its fused kernel, and its gradient by the fused
kernel of the adjoint, where the recipe is linear in its floats.
"""

import functools
import importlib.util

import torch
from torch import Tensor

from loopless.arrays.dispatch import is_traced, numpy_views
from loopless.arrays.library import NUMBER, library_of
from loopless.arrays.scan import numpy as numpy_scan

BLOCK = 32  # steps scanned by doubling before blocks are chained


def affine_scan(a: Tensor, b: Tensor, init: Tensor, *, reverse: bool, lagged: bool) -> Tensor:
    """Return x_t = a_t·x_{t±1} + b_t; lagged, its adjoint y_t = b_t + a_{t∓1}·y_{t∓1}.

    a and b are [outer, T, inner], init is [outer, inner]. Lagged, init is what the first row of
    the walk adds to b.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
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
            a_bar = x * _shift(y, torch.zeros_like(init), forward=reverse)
        else:
            a_bar = y * _shift(x, init, forward=not reverse)
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
        b_dot = b_dot + _shift(a_dot * x, torch.zeros_like(init), forward=not reverse)
    elif a_dot is not None:
        b_dot = b_dot + a_dot * _shift(x, init, forward=not reverse)
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


def _shift(x: Tensor, edge: Tensor, *, forward: bool) -> Tensor:
    """Return row t−1 of x at row t (forward), or row t+1, with `edge` where there is none."""
    edge = edge.unsqueeze(1)
    return torch.cat([edge, x[:, :-1]] if forward else [x[:, 1:], edge], dim=1)


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


def blocked_scan(a: Tensor, b: Tensor, init: Tensor, *, reverse: bool, lagged: bool) -> Tensor:
    """Return the scan by plain tensor operations, whose number grows with log T alone."""
    if reverse:
        x = blocked_scan(a.flip(1), b.flip(1), init, reverse=False, lagged=lagged)
        return x.flip(1)
    if lagged:
        a = _shift(a, torch.ones_like(init), forward=True)
    steps = b.shape[1]
    if steps <= max(BLOCK, 2):  # blocks of one would never get fewer
        products, sums = _doubling(a, b)
        return sums + torch.where(products == 0, 0, products * init.unsqueeze(1))
    width = max(BLOCK, 2)
    blocks = -(-steps // width)
    padding = blocks * width - steps
    a = torch.nn.functional.pad(a, (0, 0, 0, padding), value=1.0)
    b = torch.nn.functional.pad(b, (0, 0, 0, padding))
    outer, _, inner = b.shape
    products, sums = _doubling(
        a.reshape(outer * blocks, width, inner), b.reshape(outer * blocks, width, inner)
    )
    products = products.reshape(outer, blocks, width, inner)
    sums = sums.reshape(outer, blocks, width, inner)
    ends = blocked_scan(products[:, :, -1], sums[:, :, -1], init, reverse=False, lagged=False)
    carries = _shift(ends, init, forward=True)
    x = sums + torch.where(products == 0, 0, products * carries.unsqueeze(2))
    return x.reshape(outer, blocks * width, inner)[:, :steps]


def _doubling(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the composition of all maps from the first row to each, in ⌈log₂ T⌉ passes."""
    distance = 1
    while distance < b.shape[1]:
        # (a₂, b₂) after (a₁, b₁) is (a₂a₁, a₂b₁ + b₂); rows before the first are the identity
        earlier_a, earlier_b = a[:, :-distance], b[:, :-distance]
        later_a, later_b = a[:, distance:], b[:, distance:]
        passed = torch.where(later_a == 0, 0, later_a * earlier_b)
        b = torch.cat([b[:, :distance], later_b + passed], dim=1)
        a = torch.cat([a[:, :distance], later_a * earlier_a], dim=1)
        distance *= 2
    return a, b


def can_fuse(floats, numbers) -> bool:
    """Return whether `estimate` takes these tensors: on the CPU, no gradient of the numbers."""
    if not floats[0].is_cpu or is_traced(torch):
        return False
    return not any(x.requires_grad for x in numbers if not isinstance(x, NUMBER))


def estimate(recipe, compose, dtype, axis, floats, flags, numbers, valid):
    """Return the recipe's outputs, with a gradient by the floats.

    When the backward pass is itself to be differentiated, it uses `compose` (of `arrays.scan`).
    """
    call = recipe, compose, dtype, axis, len(floats), None
    return _Fused.apply(call, *floats, *flags, valid, *numbers)


def estimate_plain(recipe, compose, floats, flags, numbers):
    """Return what `estimate` does for plain [T, B] tensors of one dtype; None for any others.

    As in `numpy.estimate_plain`, all that matters is tested at once, so that a small rollout does
    not spend its time in checks.
    """
    views = numpy_views(torch, (*floats, *flags))
    if views is None:
        return None
    count = len(floats)
    outs = numpy_scan.estimate_plain(recipe, views[:count], views[count:], numbers)
    if outs is None:
        return None
    call = recipe, compose, floats[0].dtype, 0, count, outs
    return _Fused.apply(call, *floats, *flags, None, *numbers)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, *fields):
        recipe, compose, dtype, axis, count, outs = call
        floats, rest = fields[:count], fields[count:]
        ctx.call = recipe.adjoint, compose, axis
        ctx.dtypes = [x.dtype for x in floats]
        # Saved the official way, so that flags overwritten before backward are an error.
        ctx.places = [k for k, x in enumerate(rest) if isinstance(x, torch.Tensor)]
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in rest]
        ctx.save_for_backward(*[rest[k] for k in ctx.places])
        if outs is not None:  # computed already
            return tuple([torch.from_numpy(out) for out in outs])
        return _run(recipe, dtype, axis, floats, *_groups(rest))

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        adjoint, compose, axis = ctx.call
        rest = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            rest[place] = tensor
        dtype = gradients[0].dtype
        out = None
        if not torch.is_grad_enabled() and not is_traced(torch):
            try:
                out = _run(adjoint, dtype, axis, gradients, *_groups(rest))
            except RuntimeError:  # batched gradients have no memory of their own
                out = None
        if out is None:
            library = library_of(gradients[0])
            out = compose(adjoint, library, dtype, axis, gradients, *_groups(rest))
        needed = ctx.needs_input_grad[1:]
        wanted = [
            x.to(dtype) if need else None
            for x, dtype, need in zip(out, ctx.dtypes, needed, strict=False)
        ]
        return None, *wanted, *[None] * len(rest)


def _groups(rest):
    """Return flags, numbers and `valid`, in the order that engines take them."""
    terminated, truncated, valid, *numbers = rest
    return (terminated, truncated), tuple(numbers), valid


def _run(recipe, dtype, axis, floats, flags, numbers, valid):
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def view(x):
        return x.to(wide).numpy(force=True) if isinstance(x, torch.Tensor) else x

    floats, numbers = [view(x) for x in floats], [view(x) for x in numbers]
    numbers = [x if isinstance(x, NUMBER) or x.ndim else x.item() for x in numbers]
    flags = [x.numpy(force=True) for x in flags]
    valid = None if valid is None else valid.numpy(force=True)
    outs = numpy_scan.estimate(recipe, floats[0].dtype, axis, floats, flags, numbers, valid)
    return tuple([torch.from_numpy(out).to(dtype) for out in outs])
