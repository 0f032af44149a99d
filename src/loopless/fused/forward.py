"""`forward`: a PyTorch module on NumPy arrays, in one compiled call that reads the module's memory.

A small network under PyTorch spends its time in dispatch: some 40 µs for two hidden layers of 64,
of which the arithmetic is less than one. `network` keeps the table of operations in step with the
module, and `compiled.program` runs it.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false

import math
from typing import Any

import numpy as np
import torch
from numpy import asarray, empty
from torch import nn

from loopless.compiled.program import OUTPUT
from loopless.compiled.program import forward as run
from loopless.compiled.program import forward_one as run_one
from loopless.fused.network import Network
from loopless.fused.table import Table, Value
from loopless.refusals import refuse

# Above so many observations in a call, or products of two numbers, PyTorch itself is faster.
# Measured on one core: [32] at 200 observations, [64, 64] at 200 (900,000 products), [120, 84] at
# 65 (700,000), [256, 256] at 30 (2,000,000).
MOST_ROWS, MOST_PRODUCTS = 150, 1_000_000
float32 = np.dtype(np.float32)  # quicker to pass on than the type


class Forward:
    """A module as a function of arrays; `forward` makes it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._network = Network("forward", [module], self._end)

    def __call__(self, obs: Any) -> Any:
        """Return the module's outputs for one observation [n_in], or for [n, n_in] of them."""
        network = self._network
        if not network.is_current():
            network.refresh()
        try:
            x = asarray(obs, float32)
        except (TypeError, ValueError) as error:
            raise not_numbers("forward", obs) from error
        if x.shape != network.shape or not x.flags.carray:
            return self._call(x)
        out = empty(self._total, float32)
        run_one(network.program, x, out)
        return out if self._plain else self._arrange(out, 0)

    def _call(self, x: np.ndarray) -> Any:
        """Do a call for any number of observations, in any order of memory."""
        network = self._network
        rows = count_rows("forward", x.shape, network.width)
        if is_large(network, rows):
            return call_module(self.module, x)
        out = empty(self._total * (rows or 1), float32)
        run(network.program, as_vector(x), rows or 1, out)
        return self._arrange(out, rows)

    def __reduce__(self) -> tuple:
        return forward, (self.module,)

    def _end(self, table: Table, outputs: list[Any]) -> list[list[int]]:
        (self._outputs,) = outputs
        self._values = _flatten(self._outputs)
        ends = np.cumsum([value.width for value in self._values]).tolist()
        self._total = ends[-1]
        self._plain = isinstance(self._outputs, Value) and self._outputs.shape is None
        self._plain = self._plain and not self._outputs.flat
        return [
            [OUTPUT, end - value.width, value.width, value.at]
            for value, end in zip(self._values, ends, strict=True)
        ]

    def _arrange(self, out: np.ndarray, rows: int) -> Any:
        """Return the outputs in the structure and the shapes that the module gives them."""
        arrays, start = [], 0
        for value in self._values:
            end = start + value.width * (rows or 1)
            shape = value.shape
            if shape is None:
                shape = (rows,) * (rows > 0) + (value.width,) * (not value.flat)
            arrays.append(out[start : start + math.prod(shape)].reshape(shape))
            start = end
        if isinstance(self._outputs, dict):
            return dict(zip(self._outputs, arrays, strict=True))
        return tuple(arrays) if isinstance(self._outputs, tuple) else arrays[0]


def forward(module: nn.Module) -> Forward:
    """Return a function that computes what `module` does, NumPy in and NumPy out, in microseconds.

    forward(obs) takes one observation [n_in] or a batch [n, n_in] of any real dtype and returns a
    fresh float32 array, or a tuple or dict of them if the module does. It reads the memory of the
    module's own parameters, so it computes with the weights of the moment: after an optimizer's
    step, `load_state_dict`, `p.data = …`, or a replaced layer. Numbers in the module's forward,
    such as a scale in an attribute, are read when the module is first seen.

    The module must be on the CPU, in float32, and made of `Linear`, `LayerNorm`, `BatchNorm1d` (in
    eval mode), the common activations, and arithmetic between them; whatever else it calls is
    refused by name. Large batches run in PyTorch itself.
    """
    return Forward(module)


def not_numbers(where: str, obs: Any) -> TypeError:
    """Return the error for observations that NumPy cannot read."""
    name = type(obs).__name__
    return TypeError(f"{where}: observations must be an array of numbers; received {name}.")


def as_vector(x: np.ndarray) -> np.ndarray:
    """Return x in one dimension, contiguous and writable: the kernel is compiled for such only."""
    x = x.reshape(-1)
    return x if x.flags.carray else x.copy()


def count_rows(where: str, shape: tuple[int, ...], width: int) -> int:
    """Return n of a batch [n, …] with `width` numbers a row; 0 for a single observation."""
    if len(shape) > 1 and shape[0] and math.prod(shape[1:]) == width:
        return shape[0]
    if math.prod(shape) != width:
        refuse(
            where,
            [f"observations have shape {shape}, but the module reads {width} numbers"],
            note=f"Pass one observation ({width},) or a batch (n, {width}).",
        )
    return 0


def is_large(network: Network, rows: int) -> bool:
    """Return whether PyTorch itself should compute so many rows; never for one observation."""
    return rows > MOST_ROWS or rows * network.products > MOST_PRODUCTS


def call_module(module: nn.Module, x: np.ndarray) -> Any:
    """Return what the module itself gives for x, as arrays."""
    x = x if x.flags.carray else np.array(x, order="C")  # PyTorch warns of what it cannot write to
    with torch.no_grad():
        output = module(torch.from_numpy(x))
    if isinstance(output, dict):
        return {name: part.detach().numpy().copy() for name, part in output.items()}
    if isinstance(output, tuple | list):
        return tuple(part.detach().numpy().copy() for part in output)
    return output.detach().numpy().copy()  # it may be x, or a parameter


def _flatten(outputs: Any) -> list[Value]:
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, tuple) else [outputs]
