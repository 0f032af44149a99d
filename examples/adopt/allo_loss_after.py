"""`allo_loss_before.py` as one call, which also returns the parts to log."""

import loopless as ll


def compute_loss(features, next_features, other_features, duals, barrier):
    """Return the scalar of features [n, d] of states, their successors and other states."""
    return ll.allo_loss(features, next_features, other_features, duals, barrier)[0]
