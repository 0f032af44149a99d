"""The kernel that runs a small network from the memory of its parameters.

A network is a table of integers, a row for each operation: what it does, where in the working
memory it reads and writes, in bytes, and the addresses of the parameters. So one compilation serves
every network, and the weights are those that the parameters have at the time of the call. The first
row holds the size of the working memory; then come the loads, which run once for all observations,
the operations, and what is done with the outputs. `fused.table` writes it.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPrivateImportUsage=false

import math

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from loopless.compiled.jit import jit
from loopless.compiled.math import exp
from loopless.compiled.mlp import tanh

CODE, TO, COUNT, FROM, INNER, FIRST, SECOND, THIRD, FOURTH, FIFTH = range(10)
COLUMNS = 10
SIZE = 0  # of the first row: how many numbers the working memory holds

(
    LOAD, LINEAR, LAYER_NORM, BATCH_NORM, SOFTMAX, LOG_SOFTMAX, MEAN, SUM, COPY,
    ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM,
    RELU, TANH, SIGMOID, ELU, SELU, SILU, GELU, GELU_TANH, LEAKY_RELU, SOFTPLUS, EXP, LOG, SQRT,
    ABS, MISH,
    OUTPUT, DRAW,
) = range(32)  # fmt: skip

_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_SELU_SCALE, _SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)
_ROOT_HALF, _ROOT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)


@intrinsic
def _pointer(typing, address):
    """Return an integer as a pointer to float32."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.int64), generate


@jit(inline=True)
def floats_at(address, count):
    """Return the `count` float32 numbers at this address as an array that shares the memory."""
    return carray(_pointer(address), (count,))


@jit()
def forward(program, x, rows, out):
    """Write the outputs for the observations x [rows · n_in] to `out`, one output after another."""
    memory = np.empty(program[0, SIZE], np.float32)
    work = memory.ctypes.data
    first = load(program, work)
    for row in range(rows):
        i = run(program, first, x, row, rows, work)
        while i < program.shape[0]:
            count = program[i, COUNT]
            result = floats_at(work + program[i, FROM], count)
            start = program[i, TO] * rows + row * count
            for j in range(count):
                out[start + j] = result[j]
            i += 1


@jit()
def forward_one(program, x, out):
    """Write the outputs for one observation: a call with fewer arguments takes less time."""
    forward(program, x, 1, out)


@jit()
def scatter(vector, table, counters, counts):
    """Copy the pieces of a vector to where they belong: rows of an address and a number of words.

    A word has four bytes. The pieces lie in the vector one after the other. To the float32 numbers
    at the addresses in `counters`, `counts` are added.
    """
    _scatter(vector.ctypes.data, table, counters, counts)


@jit()
def scatter_finite(source, start, table, counters, counts, values):
    """Do what `scatter` does with the vector at `source`, and fill `values`, if all are finite.

    The values stand `start` numbers after the beginning of the vector, and after them as many that
    are 0 where something was not finite. Return whether nothing was; else nothing is written.
    """
    finite = floats_at(source + 4 * (start + values.size), values.size)
    for i in range(values.size):
        if finite[i] == 0:
            return False
    computed = floats_at(source + 4 * start, values.size)
    for i in range(values.size):
        values[i] = computed[i]
    _scatter(source, table, counters, counts)
    return True


@jit()
def _scatter(source, table, counters, counts):
    for i in range(counters.size):
        floats_at(counters[i], 1)[0] += counts[i]
    for i in range(table.shape[0]):
        count = table[i, 1]
        x, y = floats_at(source, count), floats_at(table[i, 0], count)
        for j in range(count):
            y[j] = x[j]
        source += 4 * count


@jit()
def load(program, work):
    """Copy the parameters and numbers that no row changes; return where the operations begin."""
    i = 1
    while i < program.shape[0] and program[i, CODE] == LOAD:
        count = program[i, COUNT]
        values, y = floats_at(program[i, FIRST], count), floats_at(work + program[i, TO], count)
        for j in range(count):
            y[j] = values[j]
        i += 1
    return i


@jit()
def run(program, first, x, row, rows, work):
    """Do the operations for one observation, and return the row of the table where they end.

    The observation is copied to the start of the working memory. An operation never writes to what
    it reads: the compiler's vector instructions are for vectors that do not overlap.
    """
    width = x.size // rows
    y = floats_at(work, width)
    for j in range(width):
        y[j] = x[row * width + j]
    i = first
    while i < program.shape[0] and program[i, CODE] < OUTPUT:
        code, count, inner = program[i, CODE], program[i, COUNT], program[i, INNER]
        y, x_ = floats_at(work + program[i, TO], count), floats_at(work + program[i, FROM], inner)
        if code == LINEAR:
            weight = floats_at(program[i, FIRST], count * inner)
            _linear(weight, floats_at(program[i, SECOND], count), x_, y)
        elif code >= RELU:
            _activate(code, x_, floats_at(program[i, FIRST], 2), y)
        elif code < ADD:
            _reduce(code, program, i, x_, y)
        else:
            _combine(code, program, i, work, y)
        i += 1
    return i


@jit(reassociate=True)
def _linear(weight, bias, x, y):
    """Write y = weight @ x + bias for a weight [outputs · inputs] in PyTorch's order.

    Four outputs at a time read x a quarter as often. Only with unsigned indices, which cannot count
    from the end, does the compiler make vector instructions of the inner loop.
    """
    inputs, outputs = np.uint64(x.size), np.uint64(y.size)
    one, four = np.uint64(1), np.uint64(4)
    j = np.uint64(0)
    while j + four <= outputs:
        first = j * inputs
        second = first + inputs
        third = second + inputs
        fourth = third + inputs
        a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
        for i in range(inputs):
            a += weight[first + i] * x[i]
            b += weight[second + i] * x[i]
            c += weight[third + i] * x[i]
            d += weight[fourth + i] * x[i]
        y[j] = a + bias[j]
        y[j + one] = b + bias[j + one]
        y[j + np.uint64(2)] = c + bias[j + np.uint64(2)]
        y[j + np.uint64(3)] = d + bias[j + np.uint64(3)]
        j += four
    while j < outputs:
        first = j * inputs
        a = _ZERO
        for i in range(inputs):
            a += weight[first + i] * x[i]
        y[j] = a + bias[j]
        j += one


@jit()
def _reduce(code, program, i, x, y):
    """Do an operation whose outputs read more than one input each, or a copy."""
    if code in (LAYER_NORM, BATCH_NORM):
        _normalize(code, program, i, x, y)
    elif code in (MEAN, SUM):
        total = 0.0
        for j in range(x.size):
            total += x[j]
        y[0] = total / x.size if code == MEAN else total
    elif code in (SOFTMAX, LOG_SOFTMAX):
        most = x[0]
        for j in range(x.size):
            most = max(most, x[j])
        total = 0.0
        for j in range(x.size):
            y[j] = x[j] - most
            total += math.exp(np.float64(y[j]))
        for j in range(x.size):
            if code == SOFTMAX:
                y[j] = math.exp(np.float64(y[j])) / total
            else:
                y[j] = y[j] - math.log(total)
    else:  # COPY: a number fills all of y
        for j in range(y.size):
            y[j] = x[j] if x.size > 1 else x[0]


@jit()
def _normalize(code, program, i, x, y):
    """Write y = (x − mean) / √(variance + ε) · weight + bias; statistics are running or of x."""
    epsilon = np.float64(floats_at(program[i, THIRD], 1)[0])
    if code == BATCH_NORM:
        means, variances = (
            floats_at(program[i, FOURTH], x.size),
            floats_at(program[i, FIFTH], x.size),
        )
        for j in range(x.size):
            scale = 1 / math.sqrt(np.float64(variances[j]) + epsilon)
            y[j] = (np.float64(x[j]) - means[j]) * scale
    else:
        mean, variance = 0.0, 0.0
        for j in range(x.size):
            mean += x[j]
        mean /= x.size
        for j in range(x.size):
            variance += (x[j] - mean) ** 2
        scale = 1 / math.sqrt(variance / x.size + epsilon)
        for j in range(x.size):
            y[j] = (x[j] - mean) * scale
    if program[i, FIRST]:
        weight = floats_at(program[i, FIRST], x.size)
        for j in range(x.size):
            y[j] *= weight[j]
    if program[i, SECOND]:
        bias = floats_at(program[i, SECOND], x.size)
        for j in range(x.size):
            y[j] += bias[j]


@jit()
def _combine(code, program, i, work, y):
    """Write an operation of two inputs; the step of an input that is one number is 0."""
    next_a, next_b = program[i, INNER], program[i, SECOND]
    a, b = floats_at(work + program[i, FROM], y.size), floats_at(work + program[i, FIRST], y.size)
    for j in range(y.size):
        left, right = a[j * next_a], b[j * next_b]
        if code == ADD:
            y[j] = left + right
        elif code == SUBTRACT:
            y[j] = left - right
        elif code == MULTIPLY:
            y[j] = left * right
        elif code == DIVIDE:
            y[j] = left / right
        elif code == MAXIMUM:
            y[j] = left if left > right or left != left else right
        else:
            y[j] = left if left < right or left != left else right


@jit()
def _activate(code, x, numbers, y):
    """Write a function of each number of x; `numbers` holds its settings."""
    if code == RELU:
        for j in range(x.size):
            y[j] = _ZERO if x[j] < _ZERO else x[j]  # NaN stays
    elif code == TANH:
        for j in range(x.size):
            y[j] = _tanh(x[j])
    elif code == SIGMOID:
        for j in range(x.size):
            y[j] = _sigmoid(x[j])
    elif code == SILU:
        for j in range(x.size):
            y[j] = x[j] * _sigmoid(x[j])
    elif code == ELU:
        for j in range(x.size):
            y[j] = x[j] if x[j] > _ZERO else numbers[0] * _expm1(x[j])
    elif code == SELU:
        for j in range(x.size):
            y[j] = _SELU_SCALE * (x[j] if x[j] > _ZERO else _SELU_ALPHA * _expm1(x[j]))
    elif code == LEAKY_RELU:
        for j in range(x.size):
            y[j] = numbers[0] * x[j] if x[j] < _ZERO else x[j]
    else:
        for j in range(x.size):
            y[j] = _rarer(code, x[j], numbers)


@jit()
def _rarer(code, x, numbers):
    """Return one of the functions that call the C library, in float64."""
    x = np.float64(x)
    if code == GELU:  # x Φ(x), as erfc loses no digits where Φ is small
        return 0.5 * x * math.erfc(-x * _ROOT_HALF)
    if code == GELU_TANH:  # ½ (1 + tanh z) = 1 / (1 + exp(−2z))
        return x / (1 + math.exp(-2 * _ROOT_2_OVER_PI * (x + 0.044715 * x * x * x)))
    if code == SOFTPLUS:
        return _softplus(x, numbers[0], numbers[1])
    if code == MISH:
        return x * math.tanh(_softplus(x, 1.0, 20.0))
    if code == EXP:
        return math.exp(x)
    if code == LOG:
        return math.log(x)
    if code == SQRT:
        return math.sqrt(x)
    return abs(x)


@jit(inline=True)
def _softplus(x, beta, threshold):
    return x if x * beta > threshold else math.log1p(math.exp(x * beta)) / beta


@jit(inline=True)
def _tanh(x):
    return tanh(x) if x == x else x  # `tanh` cuts off, and NaN with it


@jit(inline=True)
def _sigmoid(x):
    e = exp(-abs(x))
    return (_ONE if x >= _ZERO else e) / (_ONE + e)


@jit(inline=True)
def _expm1(x):
    """Return eˣ − 1, x ≤ 0, as 2t / (1 − t) with t = tanh(x / 2), which loses no digits at 0."""
    t = _tanh(_HALF * x)
    return _TWO * t / (_ONE - t)
