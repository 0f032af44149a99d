"""PyTorch losses that come with their gradients: backward is then one product for each input.

Recording a loss operation by operation costs more than computing it. Used by `dispatch`.
"""

import torch
from torch.autograd.function import once_differentiable


def attach(loss, gradients, inputs):
    """Return `loss` [...] with a gradient to each of `inputs` [..., *more], and to nothing else.

    `gradients` are the derivatives of each loss by its own part of each input. Differentiable
    once: the derivative is a constant here, and PyTorch raises an error if asked for more.
    """
    return _Attached.apply(loss, gradients, *inputs)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, gradients, *inputs):
        ctx.gradients = gradients  # nobody else has them, so nobody overwrites them
        return loss

    @staticmethod
    def backward(ctx, cotangent):  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():  # asked to be differentiated again
            return _products_once(ctx, cotangent.detach().requires_grad_())
        return _products(ctx, cotangent)


def _products(ctx, cotangent):
    if cotangent.ndim:
        return None, None, *[x * _spread(cotangent, x) for x in ctx.gradients]
    return None, None, *map(cotangent.mul, ctx.gradients)


def _spread(cotangent, gradient):
    """Return the cotangents [...] with the axes that a gradient [..., *more] has after them."""
    return cotangent[(..., *[None] * (gradient.ndim - cotangent.ndim))]


# Raises only when a gradient of the gradient is taken; used apart, since it costs as much as the
# products themselves.
_products_once = once_differentiable(_products)
