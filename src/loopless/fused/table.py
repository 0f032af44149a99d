"""The table of operations that `compiled.program` runs, and how it is written, row by row."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loopless.compiled import program as ops


@dataclass(frozen=True)
class Value:
    """A vector in the working memory of the kernel, `at` so many bytes from its start.

    flat: its shape in PyTorch is [n], not [n, 1].
    shape: the shape of a value that no observation changes, such as a parameter; else None.
    made_by: the code of the operation that wrote it.
    """

    at: int
    width: int
    flat: bool = False
    shape: tuple[int, ...] | None = None
    made_by: int = -1


@dataclass(frozen=True)
class Stored:
    """A parameter, buffer or other tensor of a module: `holder[name]` is what it is now."""

    holder: dict[str, Any]
    name: str

    @property
    def tensor(self) -> torch.Tensor:
        return self.holder[self.name]


@dataclass(frozen=True)
class Slot:
    """Where the table holds the address of a stored tensor."""

    row: list[int]
    column: int
    stored: Stored


class Unreadable(Exception):
    """What keeps an operation from being read, in words that follow its name."""


class Table:
    """The operations of modules that read the same observations."""

    def __init__(self) -> None:
        self.loads: list[list[int]] = []
        self.steps: list[list[int]] = []
        self.slots: list[Slot] = []
        self.absent: list[Stored] = []  # parameters that a layer could have, but has not
        self.numbers: list[np.ndarray] = []  # settings of operations, kept alive
        self.products = 0  # of two numbers, for one observation
        self.size = 0  # of the working memory, in numbers

    def room(self, width: int, **properties: Any) -> Value:
        """Return a new vector in the working memory; each begins at a multiple of 64 bytes."""
        value = Value(4 * self.size, width, **properties)
        self.size += -(-width // 16) * 16
        return value

    def address(self, *numbers: float) -> int:
        """Return where these numbers are stored from now on."""
        self.numbers.append(np.array(numbers, np.float32))
        return self.numbers[-1].ctypes.data

    def step(
        self, code: int, y: Value, x: Value, inner: int, *parameters: "int | Stored | None"
    ) -> Value:
        """Add an operation whose parameters are addresses, offsets or stored tensors."""
        self.steps.append(self.row(code, y.at, y.width, x.at, inner, *parameters))
        return y

    def row(self, *entries: "int | Stored | None") -> list[int]:
        """Return a row of the table; the addresses of stored tensors are filled in later."""
        row = []
        for column, entry in enumerate(entries):
            if isinstance(entry, Stored):
                self.slots.append(Slot(row, column, entry))
            row.append(entry if isinstance(entry, int) else 0)
        row += [0] * (ops.COLUMNS - len(row))
        return row

    def unary(self, code: int, x: Any, *numbers: float) -> Value:
        """Add a function of each entry of x; `numbers` are its settings."""
        x = self.value(x)
        y = self.room(x.width, flat=x.flat, shape=x.shape, made_by=code)
        return self.step(code, y, x, x.width, self.address(*numbers, 0.0, 0.0))

    def value(self, x: Any) -> Value:
        """Return x as a vector in the working memory: a number or a stored tensor is loaded."""
        if isinstance(x, Value):
            return x
        if isinstance(x, bool | int | float):
            return self.fill(1, float(x), ())
        if not isinstance(x, Stored):
            raise Unreadable(f"reads {type(x).__name__}, which is no tensor")
        shape = tuple(x.tensor.shape)
        if len(shape) > 2 or (len(shape) == 2 and shape[0] != 1):
            raise Unreadable(
                f'reads "{x.name}" of shape {shape}; a tensor that is not the weight of a linear '
                "layer must have one row"
            )
        y = self.room(math.prod(shape), shape=shape)
        self.loads.append(self.row(ops.LOAD, y.at, y.width, 0, 0, x))
        return y

    def fill(self, width: int, number: float, shape: tuple[int, ...] | None) -> Value:
        """Add a vector of equal numbers."""
        y = self.room(width, shape=shape)
        numbers = self.address(*[number] * width)
        self.loads.append(self.row(ops.LOAD, y.at, y.width, 0, 0, numbers))
        return y

    def binary(self, code: int, left: Any, right: Any) -> Value:
        """Add an operation on two values, of which one may be a single number for all entries."""
        a, b = self.value(left), self.value(right)
        width = max(a.width, b.width)
        rows = [v for v in (a, b) if v.shape is None]
        wrong = not {a.width, b.width} <= {1, width} or (width > 1 and any(v.flat for v in rows))
        if wrong or len({v.flat for v in rows}) > 1:
            raise Unreadable(f"combines {describe(a)} with {describe(b)}")
        shape = None if rows else max(a, b, key=lambda v: v.width).shape
        y = self.room(width, flat=bool(rows) and rows[0].flat, shape=shape, made_by=code)
        step_a, step_b = int(a.width > 1), int(b.width > 1)
        return self.step(code, y, a, step_a, b.at, step_b)

    def linear(self, x: Value, weight: Stored, bias: Stored | None) -> Value:
        """Add x @ weight.T + bias."""
        outputs, inputs = weight.tensor.shape
        self.same_width(x, inputs)
        self.products += inputs * outputs
        y = self.room(outputs, made_by=ops.LINEAR)
        return self.step(ops.LINEAR, y, x, inputs, weight, bias or self.address(*[0.0] * outputs))

    def widen(self, x: Any, width: int, flat: bool = False) -> Value:
        """Return x for each row, its one number for all entries if it is one."""
        x = self.value(x)
        if x.width not in (1, width):
            raise Unreadable(f"makes {width} entries of {x.width}")
        y = self.room(width, flat=flat, made_by=x.made_by)
        return self.step(ops.COPY, y, x, x.width)

    def normalize(self, code: int, x: Value, width: int, *parameters: Any) -> Value:
        """Add a normalization over all entries, or by running statistics."""
        self.same_width(x, width)
        return self.step(code, self.room(width), x, width, *parameters)

    def reduce(self, code: int, x: Any, dim: Any, keepdim: bool = True) -> Value:
        """Add an operation each of whose outputs reads all entries of x."""
        x = self.features(x, dim)
        width = x.width if code in (ops.SOFTMAX, ops.LOG_SOFTMAX) else 1
        y = self.room(width, flat=not keepdim, made_by=code)
        return self.step(code, y, x, x.width)

    def recode(self, value: Value, code: int) -> None:
        """Let another operation with the same inputs write this value."""
        for row in self.steps:
            if row[ops.TO] == value.at:
                row[ops.CODE] = code

    def features(self, x: Any, dim: Any) -> Value:
        """Return x as a value whose entries `dim` runs over: never over the observations."""
        x = self.value(x)
        dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
        if dim not in (-1, 1) or x.flat or x.shape is not None:
            raise Unreadable(f"runs over dim={dim}; it must run over the features, dim=-1")
        return x

    def same_width(self, x: Value, width: int) -> None:
        """Refuse x if a layer of this width cannot read it."""
        if x.width != width or x.flat:
            raise Unreadable(f"takes {width} entries; it would receive {describe(x)}")


def describe(value: Value) -> str:
    return "one number for each row" if value.flat else f"{value.width} entries"
