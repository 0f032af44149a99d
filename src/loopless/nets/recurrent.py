"""Memory for policies: GRU and LSTM on batches, unrolled over time, zeroed where episodes start.

The product with the inputs does not depend on memory and is made for all steps at once; only the
recurrent product is left to the scan. Its twin, a loop with explicit resets, is in
`tests/nets/test_recurrent.py`.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from loopless.nets.mlp import Linear

Memory: TypeAlias = Any  # arrays [..., width]: h of a GRU, (h, c) of an LSTM, () of no core


class GRU(eqx.Module):
    """Gated recurrent units, Cho et al. 2014, with the reset after the product.

    r = σ(x Wr + h Ur)   z = σ(x Wz + h Uz)   n = tanh(x Wn + r ⊙ (h Un + b))
    h ← z ⊙ h + (1 − z) ⊙ n                        x W includes a bias, which is 1 in z at first
    """

    inputs: Linear  # [in, 3 width]: r, z, n
    recurrent: jax.Array  # [width, 3 width]
    bias: jax.Array  # [width]: b
    width: int = eqx.field(static=True)

    def __init__(self, inputs: int, width: int, key: jax.Array) -> None:
        for_inputs, for_recurrent = jax.random.split(key)
        self.inputs = Linear(inputs, 3 * width, for_inputs)
        self.recurrent = Linear(width, 3 * width, for_recurrent).weight
        self.bias, self.width = jnp.zeros(width, jnp.float32), width

    def memory(self, *leading: int) -> Memory:
        """Return the empty memory: zeros [*leading, width]."""
        return jnp.zeros((*leading, self.width), self.recurrent.dtype)

    def read(self, memory: Memory) -> jax.Array:
        """Return what the heads read of a memory: [..., width]."""
        return memory

    def step(self, memory: Memory, x: jax.Array) -> Memory:
        """Return the memory [..., width] after x = inputs(step) [..., 3 width]."""
        x_r, x_z, x_n = jnp.split(x, 3, -1)
        h_r, h_z, h_n = jnp.split(memory @ self.recurrent, 3, -1)
        keep = jax.nn.sigmoid(x_z + h_z + 1)
        new = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * (h_n + self.bias))
        return new + keep * (memory - new)


class LSTM(eqx.Module):
    """Long short-term memory, Hochreiter and Schmidhuber 1997, Gers et al. 2000.

    i, f, o = σ(x W + h U)   g = tanh(x Wg + h Ug)   c ← f ⊙ c + i ⊙ g   h = o ⊙ tanh c
    x W includes a bias, which is 1 in f at first
    """

    inputs: Linear  # [in, 4 width]: i, f, o, g
    recurrent: jax.Array  # [width, 4 width]
    width: int = eqx.field(static=True)

    def __init__(self, inputs: int, width: int, key: jax.Array) -> None:
        for_inputs, for_recurrent = jax.random.split(key)
        self.inputs = Linear(inputs, 4 * width, for_inputs)
        self.recurrent = Linear(width, 4 * width, for_recurrent).weight
        self.width = width

    def memory(self, *leading: int) -> Memory:
        """Return the empty memory: zeros [*leading, width] for h and c."""
        zeros = jnp.zeros((*leading, self.width), self.recurrent.dtype)
        return zeros, zeros

    def read(self, memory: Memory) -> jax.Array:
        """Return what the heads read of a memory: h [..., width]."""
        return memory[0]

    def step(self, memory: Memory, x: jax.Array) -> Memory:
        """Return the memory, two of [..., width], after x = inputs(step) [..., 4 width]."""
        h, c = memory
        i, f, o, g = jnp.split(x + h @ self.recurrent, 4, -1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


Core: TypeAlias = GRU | LSTM
CORES = {"gru": GRU, "lstm": LSTM}


def unroll(core: Core, memory: Memory, x: jax.Array, starts: jax.Array) -> Memory:
    """Return the memories [T, N, ...] after each step of x [T, N, in], starting from `memory`.

    Where `starts` [T, N] is true an episode starts: memory is zeroed before that step is read.
    """

    def step(memory, now):
        row, start = now
        memory = core.step(forget(memory, start), row)
        return memory, memory

    return lax.scan(step, memory, (core.inputs(x), starts))[1]


def forget(memory: Memory, starts: jax.Array) -> Memory:
    """Return `memory` [..., width], zero where `starts` [...] is true, whatever it held."""
    return jax.tree.map(lambda part: jnp.where(starts[..., None], 0, part), memory)
