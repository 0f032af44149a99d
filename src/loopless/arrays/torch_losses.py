"""PyTorch losses that come with their gradients: backward is then one product for each input.

Recording a loss operation by operation costs more than computing it. Tests:
`tests/kernels/test_q_learning_gradients.py` and `tests/kernels/test_policy_gradient_gradients.py`.
"""

import torch
from torch.autograd.function import once_differentiable


def attached(loss, gradients, inputs):
    """`loss` [...] with a gradient to each of `inputs` [..., *more], and to nothing else.

    `gradients` are the derivatives of each loss by its own part of each input. Differentiable
    once: the derivative is a constant here, and PyTorch says so if asked for more.
    """
    return _Attached.apply(loss, gradients, *inputs)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, gradients, *inputs):
        ctx.gradients = gradients  # nobody else's, so that nobody overwrites them
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
    """The cotangent of each loss over all that belongs to it."""
    return cotangent[(..., *[None] * (gradient.ndim - cotangent.ndim))]


# Refuses only what comes of a gradient that needs one; it costs as much as the products.
_products_once = once_differentiable(_products)
