"""Generalised advantage estimates that go wrong, in JAX."""

import jax
import jax.numpy as jnp


@jax.jit
def scan_over_done(reward, value, done, last_val, gamma, gae_lambda):
    """A compiled scan over time with one flag, as in end-to-end compiled PPO."""

    def step(carry, row):
        advantage, following = carry
        r, v, d = row
        delta = r + gamma * following * (1 - d) - v
        advantage = delta + gamma * gae_lambda * (1 - d) * advantage
        return (advantage, v), advantage

    start = jnp.zeros_like(last_val), last_val
    _, advantages = jax.lax.scan(step, start, (reward, value, done), reverse=True)
    return advantages, advantages + value
