"""Helpers of the device buffers' tests: numbered transitions, laws of draws, copies in programs."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

GAMMA = 0.9
MASK = 2**64 - 1
FIELDS = {
    # `near` is small enough to be packed with other fields; `image` is stored apart.
    "obs": {"near": ((3,), np.float32), "image": ((5, 60), np.uint8)},
    "action": ((), np.int16),
    "reward": ((), np.float64),
    "next_obs": {"near": ((3,), np.float32), "image": ((5, 60), np.uint8)},
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}
CARTPOLE = {
    "obs": ((4,), np.float32),
    "action": ((), np.int32),
    "reward": ((), np.float32),
    "next_obs": ((4,), np.float32),
    "terminated": ((), np.bool_),
}

add = jax.jit(lambda buffer, state, rows, valid=None: buffer.add(state, rows, valid),
              static_argnums=0)  # fmt: skip
gather = jax.jit(lambda buffer, state, slots: buffer.gather(state, slots), static_argnums=0)
sample = jax.jit(lambda buffer, state, key, shape, options: buffer.sample(
    state, key, *shape, **dict(options)), static_argnums=(0, 3, 4))  # fmt: skip
update = jax.jit(lambda buffer, state, indices, priorities: buffer.update_priorities(
    state, indices, priorities), static_argnums=0)  # fmt: skip


def transition(number, end=""):
    """Return transition `number` of a stream; its contents tell it apart from all others."""

    def observation(n):
        return {
            "near": np.array([n, 2 * n, -n], np.float32),
            "image": np.full((5, 60), n % 251, np.uint8),
        }

    return {
        "obs": observation(number),
        "action": np.int16(number),
        "reward": np.float64(np.sin(number)),
        "next_obs": observation(number + 1000),
        "terminated": np.bool_(end == "terminated"),
        "truncated": np.bool_(end == "truncated"),
    }


def cartpole(numbers):
    """Return transitions of five fields for an array of numbers; this can be traced by JAX."""
    x = jnp.asarray(numbers, jnp.float32)
    return {
        "obs": jnp.stack([x, 2 * x, 3 * x, 4 * x], -1),
        "action": x.astype(jnp.int32),
        "reward": x / 8,
        "next_obs": jnp.stack([x + 1, 2 * x, 3 * x, 4 * x], -1),
        "terminated": x % 7 == 0,
    }


def stack(rows):
    if isinstance(rows[0], dict):
        return {name: stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack([np.asarray(row) for row in rows])


def leaves(tree, prefix=""):
    flat = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= leaves(value, f"{path}/") if isinstance(value, dict) else {path: np.asarray(value)}
    return flat


def check_batch(batch, twin, n_step=1):
    """Check that every transition of a batch is what the twin holds in that slot."""
    axes = np.asarray(batch["indices"]).ndim
    flat = {
        name: array.reshape(-1, *array.shape[axes:])
        for name, array in leaves(batch).items()
        if name != "weights"
    }
    for k, slot in enumerate(flat.pop("indices").tolist()):
        wanted = leaves(twin.window(slot, n_step, GAMMA) if n_step > 1 else twin.at(slot))
        for name, array in flat.items():
            if name in ("reward", "discount"):
                np.testing.assert_allclose(array[k], wanted[name], rtol=1e-12, atol=1e-14)
            else:
                np.testing.assert_array_equal(array[k], wanted[name], err_msg=name)


def words_of(numbers):
    """Return 64-bit integers as the samplers take them: uint32 [2, ...]."""
    numbers = np.asarray(numbers, np.uint64)
    return jnp.asarray(np.stack([numbers >> np.uint64(32), numbers & np.uint64(2**32 - 1)])
                       .astype(np.uint32))  # fmt: skip


def likely(counts, law):
    """Return whether χ² of counts under a law has p ≥ 1e-4, by Wilson and Hilferty's cube root."""
    counts, law = np.asarray(counts, float), np.asarray(law, float)
    if counts[law == 0].any():
        return False
    counts, wanted = counts[law > 0], counts.sum() * law[law > 0]
    assert wanted.min() >= 5
    freedom = len(wanted) - 1
    spread = 2 / (9 * freedom)
    statistic = ((counts - wanted) ** 2 / wanted).sum()
    return (statistic / freedom) ** (1 / 3) <= 1 - spread + 3.719 * spread**0.5


def compiled_text(step, state, steps=20):
    """Return the text of the compiled program that scans `step` with a donated carry."""
    run = jax.jit(lambda c, s: lax.scan(step, c, s), donate_argnums=0)
    return run.lower(state, jnp.arange(steps)).compile().as_text()


def copies(text, *shapes):
    """Count how often a compiled program copies an array of one of these shapes."""
    shapes = "|".join(",".join(map(str, shape)) for shape in shapes)
    return len(re.findall(rf"= \w+\[(?:{shapes})\]\S* copy\(", text))
