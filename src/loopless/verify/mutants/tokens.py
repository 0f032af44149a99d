"""GAE over tokens as it goes wrong in real code; read `mutants.returns` for the conventions."""

import numpy as np

from loopless import reference


def masked_values_bootstrap_tokens(
    rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0
):
    """Bootstraps a token from the value of the masked-out token that follows it."""
    following = np.concatenate([values[1:], np.zeros_like(values[:1])])
    deltas = rewards + gamma * following - values
    advantages = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        carry = np.where(mask[t], deltas[t] + gamma * lambda_ * carry, carry)
        advantages[t] = carry
    return np.where(mask, advantages, 0.0), np.where(mask, advantages + values, 0.0)


def gaps_reset_the_trace(*arrays, **options):
    """Resets the trace at a gap: what later turns earn never reaches the earlier ones."""
    return reference.token_gae(*arrays, **options | {"gaps": "reset"})


def packed_rows_run_together(*arrays, **options):
    """Runs packed sequences together: one sequence's rewards reach the one before it."""
    return reference.token_gae(*arrays, **options | {"gaps": "skip"})


ALL = (
    ("token_gae, skip", masked_values_bootstrap_tokens),
    ("token_gae, skip", gaps_reset_the_trace),
    ("token_gae, reset", packed_rows_run_together),
)
