"""PyTorch losses that come with their gradient: backward is then one product.

Recording a loss operation by operation costs more than computing it. Tests:
`tests/kernels/test_q_learning_gradients.py`.
"""

import torch
from torch.autograd.function import once_differentiable


def attached(loss, gradient, x):
    """`loss` [...] with a gradient to x [..., m, n] alone: the derivative of each loss by its x.

    Differentiable once: the derivative is a constant here, and PyTorch says so if asked for more.
    """
    return _Attached.apply(x, loss, gradient)


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, loss, gradient):
        ctx.gradient = gradient  # nobody else's, so that nobody overwrites it
        return loss

    @staticmethod
    def backward(ctx, cotangent):  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():  # asked to be differentiated again
            return _product_once(ctx, cotangent.detach().requires_grad_())
        return _product(ctx, cotangent)


def _product(ctx, cotangent):
    spread = cotangent[..., None, None] if cotangent.ndim else cotangent
    return ctx.gradient * spread, None, None


# Refuses only what comes of a gradient that needs one; it costs as much as the product.
_product_once = once_differentiable(_product)
