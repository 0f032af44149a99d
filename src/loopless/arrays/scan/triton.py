"""The scan on PyTorch tensors on a GPU: a Triton kernel, one program per tile of columns.

A program walks its columns in chunks of time: inside a chunk an associative scan, between chunks
one carried row, so that T may be of any length. Nothing here has run on a GPU yet: the tests run
this kernel in Triton's interpreter, on the CPU.
"""

# Triton's decorator changes what a function's signature means:
# pyright: reportArgumentType=false

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 64  # steps of one associative scan
COLUMNS = 32  # columns of one program


@triton.jit
def _compose(a_first, b_first, a_second, b_second):
    # The map of the later operand is applied after the earlier one; the order matters.
    passed = tl.where(a_second == 0, 0.0, a_second * b_first)
    return a_second * a_first, passed + b_second


@triton.jit
def _scan_kernel(
    a_ptr,
    b_ptr,
    init_ptr,
    out_ptr,
    steps,
    inner,
    a_outer,
    a_step,
    a_inner,
    b_outer,
    b_step,
    b_inner,
    REVERSE: tl.constexpr,
    LAGGED: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # Tiles of columns and outer rows on one axis of the grid: the others are limited to 65,535.
    tiles = tl.cdiv(inner, COLUMNS)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    columns = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < inner
    rows = tl.arange(0, CHUNK)
    carry = tl.load(init_ptr + outer * inner + columns, mask=inside, other=0.0)
    for chunk in range(tl.cdiv(steps, CHUNK)):
        # Rows are numbered in the order of the walk; `time` is where they lie in memory.
        walked = chunk * CHUNK + rows
        time = walked
        source = walked
        if LAGGED:
            source = walked - 1  # the coefficient belongs to the row before
        if REVERSE:
            time = steps - 1 - walked
            source = steps - 1 - source
        here = (walked < steps)[:, None] & inside[None, :]
        has_a = (source >= 0)[:, None] & (source < steps)[:, None] & here
        time = time.to(tl.int64)
        source = source.to(tl.int64)
        a_at = outer * a_outer + source[:, None] * a_step + columns[None, :] * a_inner
        b_at = outer * b_outer + time[:, None] * b_step + columns[None, :] * b_inner
        a = tl.load(a_ptr + a_at, mask=has_a, other=1.0)
        b = tl.load(b_ptr + b_at, mask=here, other=0.0)
        products, sums = tl.associative_scan((a, b), 0, _compose)
        x = sums + tl.where(products == 0, 0.0, products * carry[None, :])
        out_at = (outer * steps + time[:, None]) * inner + columns[None, :]
        tl.store(out_ptr + out_at, x, mask=here)
        # Rows past the end are identities, so the chunk's last row holds the carry in any case.
        carry = tl.sum(tl.where((rows == CHUNK - 1)[:, None], x, 0.0), axis=0)


def affine_scan(a: Tensor, b: Tensor, init: Tensor, *, reverse: bool, lagged: bool) -> Tensor:
    """Return what `torch.affine_scan` does, for tensors on a GPU; a and b are not copied."""
    outer, steps, inner = b.shape
    out = torch.empty(b.shape, dtype=b.dtype, device=b.device)
    if out.numel() == 0:
        return out
    chunk = min(CHUNK, triton.next_power_of_2(steps))
    columns = min(COLUMNS, triton.next_power_of_2(inner))
    # Triton launches on the current device, which need not be the tensors'.
    with torch.cuda.device(b.device) if b.is_cuda else nullcontext():
        _scan_kernel[(outer * triton.cdiv(inner, columns),)](
            a,
            b,
            init.contiguous(),
            out,
            steps,
            inner,
            *a.stride(),
            *b.stride(),
            REVERSE=reverse,
            LAGGED=lagged,
            CHUNK=chunk,
            COLUMNS=columns,
        )
    return out
