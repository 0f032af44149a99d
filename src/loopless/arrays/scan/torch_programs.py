"""Recipes as one operator each in programs that torch.compile makes, for the CPU.

Apart from `torch`, because what it takes from PyTorch to define them imports its compiler, which
takes longer than most programs that do not compile. Imported while a program is being made.
"""

import operator

import torch

from loopless.arrays.dispatch import empty
from loopless.arrays.library import NUMBER
from loopless.arrays.scan import numpy as numpy_scan
from loopless.arrays.scan.recipe import ESTIMATORS, NAMED
from loopless.arrays.scan.torch import NUMPY_DTYPES, run

_is_contiguous = operator.methodcaller("is_contiguous")


@torch.compiler.allow_in_graph
def in_graph(function: str, time_axis, *fields):
    """Return ESTIMATORS[function] of the fields, in a program that torch.compile makes.

    PyTorch then does not look into our code, which it would otherwise check for changes at every
    call of the program: that takes as long as a small rollout itself.
    """
    # A number that PyTorch holds for changing (dynamic=True): the program is made for its value.
    fields = [float(x) if isinstance(x, torch.SymFloat) else x for x in fields]
    return ESTIMATORS[function](time_axis, *fields)


def can_call(dtype, floats, numbers) -> bool:
    """Return whether `call` takes these tensors: in a program being compiled, for the CPU."""
    return (
        not torch._C._are_functorch_transforms_active()
        and dtype in NUMPY_DTYPES
        and all(x.is_cpu and x.dtype == dtype for x in floats)
        and all(isinstance(x, NUMBER) for x in numbers)
    )


def call(recipe, axis, floats, flags, numbers, valid):
    """Return the recipe's outputs by one operator in a compiled program, differentiable once."""
    numbers = [float(x) for x in numbers]
    if torch.is_grad_enabled() and any(x.requires_grad for x in floats):
        return _Called.apply(recipe.name, axis, numbers, valid, *flags, *floats)
    return tuple(_estimate(recipe.name, list(floats), *flags, valid, numbers, axis))


# Defined by hand: what `torch.library.custom_op` adds around a call takes longer than the call, and
# so does a registered derivative, even where none is wanted.
_LIBRARY = torch.library.Library("loopless", "FRAGMENT")
_LIBRARY.define(
    "estimate(str recipe, Tensor[] floats, Tensor terminated, Tensor truncated, Tensor? valid, "
    "float[] numbers, int axis) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_estimate = torch.ops.loopless.estimate


def _estimate_called(name, floats, terminated, truncated, valid, numbers, axis):
    # Kinds and shapes were checked while the program was made.
    recipe, flags, numbers = NAMED[name], (terminated, truncated), tuple(numbers)
    first = floats[0]
    shape, tensors = first.shape, (*floats, *flags) if valid is None else (*floats, *flags, valid)
    if len(shape) != 2 or not first.numel() or not all(map(_is_contiguous, tensors)):
        outs = run(recipe, first.dtype, axis, floats, flags, numbers, valid)
        return [x.contiguous() for x in outs]
    outs = tuple([empty(shape, NUMPY_DTYPES[first.dtype]) for _ in range(recipe.outputs)])
    sizes = numpy_scan.plain_sizes(shape, axis)
    assert sizes is not None  # there are two axes
    numpy_scan.kernel(recipe, sizes[2])(
        *sizes,
        None if valid is None else valid.data_ptr(),
        tuple([x.data_ptr() for x in floats]),
        tuple([x.data_ptr() for x in flags]),
        numbers,
        outs,
    )
    return [torch.from_numpy(out) for out in outs]


_LIBRARY.impl("estimate", _estimate_called, "CPU")
_LIBRARY.impl("estimate", torch.library.fallthrough_kernel, "Autograd")


@torch.library.register_fake("loopless::estimate", lib=_LIBRARY)
def _(name, floats, terminated, truncated, valid, numbers, axis):
    shape = floats[0].shape
    return [floats[0].new_empty(shape) for _ in range(NAMED[name].outputs)]


class _Called(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, axis, numbers, valid, terminated, truncated, *floats):
        ctx.name, ctx.axis, ctx.numbers, ctx.masked = name, axis, numbers, valid is not None
        ctx.save_for_backward(terminated, truncated, *([] if valid is None else [valid]))
        return tuple(_estimate(name, list(floats), terminated, truncated, valid, numbers, axis))

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        terminated, truncated, *valid = ctx.saved_tensors
        adjoint, valid = NAMED[ctx.name].adjoint, valid[0] if ctx.masked else None
        assert adjoint is not None  # every estimator that can be called has one
        name = adjoint.name
        out = _estimate(name, list(gradients), terminated, truncated, valid, ctx.numbers, ctx.axis)
        return None, None, None, None, None, None, *out
