"""Gradients of whole recipes on the CPU: the fused kernel forwards, its fused adjoint backwards.

Only where a recipe is linear in its floats and no gradient is asked of its numbers; everything
else takes the recipe over tensors and the operator of `torch_scan`. When the backward pass is
itself to be differentiated, it takes that road too.
"""

import torch

from loopless.arrays import scan
from loopless.arrays.dispatch import is_watched
from loopless.arrays.library import NUMBER, library_of
from loopless.arrays.scan import numpy as numpy_fused


def applies(floats, numbers) -> bool:
    """Whether these tensors can take the fused road."""
    if not floats[0].is_cpu or is_watched(torch):
        return False
    return not any(x.requires_grad for x in numbers if not isinstance(x, NUMBER))


def estimate(recipe, dtype, axis, floats, flags, numbers, valid):
    """What `scan.estimate` gives, with a gradient."""
    return _Fused.apply(recipe, dtype, axis, len(floats), *floats, *flags, valid, *numbers)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, recipe, dtype, axis, count, *fields):
        floats, rest = fields[:count], fields[count:]
        ctx.call = recipe, axis
        ctx.dtypes = [x.dtype for x in floats]
        # Saved the official way, so that flags overwritten before backward are an error.
        ctx.places = [k for k, x in enumerate(rest) if isinstance(x, torch.Tensor)]
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in rest]
        ctx.save_for_backward(*[rest[k] for k in ctx.places])
        return _run(recipe, dtype, axis, floats, *_parted(rest))

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        recipe, axis = ctx.call
        rest = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            rest[place] = tensor
        dtype = gradients[0].dtype
        out = None
        if not torch.is_grad_enabled() and not is_watched(torch):
            try:
                out = _run(recipe.adjoint, dtype, axis, gradients, *_parted(rest))
            except RuntimeError:  # batched gradients have no memory of their own
                out = None
        if out is None:
            library = library_of(gradients[0])
            out = scan.composed(recipe.adjoint, library, dtype, axis, gradients, *_parted(rest))
        needed = ctx.needs_input_grad[4:]
        wanted = [
            x.to(dtype) if need else None
            for x, dtype, need in zip(out, ctx.dtypes, needed, strict=False)
        ]
        return None, None, None, None, *wanted, *[None] * len(rest)


def _parted(rest):
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
    outs = numpy_fused.fused(recipe, floats[0].dtype, axis, floats, flags, numbers, valid)
    return tuple([torch.from_numpy(out).to(dtype) for out in outs])
