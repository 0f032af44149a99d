"""Gradients of whole recipes on the CPU: the fused kernel forwards, its fused adjoint backwards.

Only where a recipe is linear in its floats and no gradient is asked of its numbers; everything
else takes the recipe over tensors and the operator of `torch_scan`. When the backward pass is
itself to be differentiated, it takes that road too.
"""

import torch

from loopless.arrays import numpy_fused, scan
from loopless.arrays.library import NUMBER, library_of


def applies(floats, numbers) -> bool:
    """Whether these tensors can take the fused road."""
    if torch.compiler.is_compiling() or not floats[0].is_cpu:
        return False
    if any(x.requires_grad for x in numbers if not isinstance(x, NUMBER)):
        return False
    try:
        floats[0].detach().data_ptr()
    except RuntimeError:  # inside vmap and its kin a tensor has no memory of its own
        return False
    return True


def estimate(recipe, dtype, axis, floats, flags, numbers, valid):
    """What `scan.estimate` gives, with a gradient."""
    return _Fused.apply(recipe, dtype, axis, flags, numbers, valid, *floats)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, recipe, dtype, axis, flags, numbers, valid, *floats):
        ctx.call = recipe, axis, flags, numbers, valid
        ctx.dtypes = [x.dtype for x in floats]
        return _run(recipe, dtype, axis, floats, flags, numbers, valid)

    @staticmethod
    def backward(ctx, *gradients):  # pyright: ignore[reportIncompatibleMethodOverride]
        recipe, axis, flags, numbers, valid = ctx.call
        adjoint = recipe.adjoint
        dtype = gradients[0].dtype
        if torch.is_grad_enabled():
            library = library_of(gradients[0])
            out = scan.composed(adjoint, library, dtype, axis, gradients, flags, numbers, valid)
        else:
            out = _run(adjoint, dtype, axis, gradients, flags, numbers, valid)
        needed = ctx.needs_input_grad[6:]
        return (None,) * 6 + tuple(
            x.to(dtype) if wanted else None
            for x, dtype, wanted in zip(out, ctx.dtypes, needed, strict=True)
        )


def _run(recipe, dtype, axis, floats, flags, numbers, valid):
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    def view(x):
        return x.to(wide).numpy(force=True) if isinstance(x, torch.Tensor) else x

    floats, numbers = [view(x) for x in floats], [view(x) for x in numbers]
    numbers = [x if isinstance(x, NUMBER) or x.ndim else x.item() for x in numbers]
    flags = [x.numpy() for x in flags]
    valid = None if valid is None else valid.numpy()
    outs = numpy_fused.fused(recipe, floats[0].dtype, axis, floats, flags, numbers, valid)
    return tuple([torch.from_numpy(out).to(dtype) for out in outs])
