"""The bare scan in plain tensor operations, in blocks, for any device that PyTorch knows."""

import torch
from torch import Tensor

BLOCK = 32  # steps scanned by doubling before blocks are chained


def blocked_scan(a: Tensor, b: Tensor, init: Tensor, *, reverse: bool, lagged: bool) -> Tensor:
    """Return the scan by plain tensor operations, whose number grows with log T alone."""
    if reverse:
        x = blocked_scan(a.flip(1), b.flip(1), init, reverse=False, lagged=lagged)
        return x.flip(1)
    if lagged:
        a = shift(a, torch.ones_like(init), forward=True)
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
    carries = shift(ends, init, forward=True)
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


def shift(x: Tensor, edge: Tensor, *, forward: bool) -> Tensor:
    """Return row t−1 of x at row t (forward), or row t+1, with `edge` where there is none."""
    edge = edge.unsqueeze(1)
    return torch.cat([edge, x[:, :-1]] if forward else [x[:, 1:], edge], dim=1)
