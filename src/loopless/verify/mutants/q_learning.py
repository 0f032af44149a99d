"""Q-learning as it goes wrong in real code, each with the diagnosis as its docstring.

Mutants of `q_targets` and `q_loss` take the arguments of the kernel that they break; those of
`q_update` take a whole batch and return targets, losses, errors, and the gradients of the sum of
the losses by `q` and by `next_q`. All arrays are float64 NumPy arrays.
"""

import numpy as np

from loopless import reference
from loopless.verify.cases.batches import call_targets


def masks_targets_by_multiplying(rewards, terminated, *rest, gamma, **options):
    """Masks the bootstrap by multiplying: 0·NaN is NaN, so that a terminal state's value, which
    nobody should read, poisons the target."""
    never = np.zeros_like(terminated)
    values = reference.q_targets(np.zeros_like(rewards), never, *rest, gamma=1.0, **options)
    return rewards + gamma * (1.0 - terminated) * values


def bootstraps_at_terminations(rewards, terminated, *rest, **options):
    """Bootstraps after a terminal state, as if the episode went on."""
    return reference.q_targets(rewards, np.zeros_like(terminated), *rest, **options)


def swaps_the_networks(rewards, terminated, next_q, *, next_q_online=None, **options):
    """Swaps the networks of double Q-learning: the target network chooses the action, and the
    online network, which should choose, says what it is worth."""
    if next_q_online is not None:
        next_q, next_q_online = next_q_online, next_q
    options["next_q_online"] = next_q_online
    return reference.q_targets(rewards, terminated, next_q, **options)


def leaves_the_online_network_out(*arrays, next_q_online=None, **options):
    """Leaves the online network out: the maximum over the target network is plain DQN."""
    return reference.q_targets(*arrays, **options)


def chooses_the_last_of_equals(*arrays, next_q_online=None, next_actions=None, **options):
    """Chooses the last of equal values where argmax chooses the first."""
    if next_actions is None:
        judge = arrays[2] if next_q_online is None else next_q_online
        next_actions = judge.shape[-1] - 1 - np.argmax(judge[..., ::-1], axis=-1)
    return reference.q_targets(*arrays, next_actions=next_actions, **options)


def is_greedy_where_the_agent_was_not(*arrays, next_actions=None, **options):
    """Takes the best next action for SARSA, whose next action is the one that was taken."""
    return reference.q_targets(*arrays, **options)


def discounts_every_window_alike(*arrays, gamma, **options):
    """Discounts every n-step window alike: one that an end cut short has a power of its own."""
    return reference.q_targets(*arrays, gamma=np.max(gamma), **options)


def averages_over_all_batches(*arrays, **options):
    """Averages over all batches together: one large batch instead of K losses."""
    losses, errors = reference.q_loss(*arrays, **options)
    return np.full_like(losses, losses.mean()), errors


def divides_by_the_weights(*arrays, weights=None, **options):
    """Divides by the sum of the weights: importance weights must not be normalized away, and
    weights that are all 0 give 0/0."""
    losses, errors = reference.q_loss(*arrays, weights=weights, **options)
    return losses if weights is None else losses / weights.mean(-1), errors


def leaves_the_weights_out(*arrays, weights=None, **options):
    """Leaves the importance weights out of the loss."""
    ones = None if weights is None else np.where(weights == 0, 0.0, 1.0)
    return reference.q_loss(*arrays, weights=ones, **options)


def multiplies_by_a_weight_of_zero(*arrays, weights=None, **options):
    """Takes a sample out by multiplying with 0: if it holds NaN, so does the loss."""
    losses, errors = reference.q_loss(*arrays, weights=weights, **options)
    return losses + (0.0 if weights is None else (0.0 * errors).mean(-1)), errors


def weights_the_errors(*arrays, weights=None, **options):
    """Returns weighted errors: priorities made of them count the weights twice."""
    losses, errors = reference.q_loss(*arrays, weights=weights, **options)
    return losses, errors if weights is None else weights * errors


def negates_the_errors(*arrays, **options):
    """Returns target minus value: as a slope it points away from the target."""
    losses, errors = reference.q_loss(*arrays, **options)
    return losses, -errors


def squeezes_every_axis(*arrays, **options):
    """Squeezes every axis of length 1, not the one it made: a batch of one loses its shape."""
    losses, errors = reference.q_loss(*arrays, **options)
    return losses, errors.squeeze()


def broadcasts_a_column(q, actions, targets, **options):
    """Subtracts a column from a row: [B, 1] and [B] make [B, B], and the mean is of all pairs."""
    rows = np.broadcast_to(targets[..., None, :], (*targets.shape, targets.shape[-1]))
    pairs = [
        reference.q_loss(q, actions, rows[..., b], **options)[0] for b in range(targets.shape[-1])
    ]
    _, errors = reference.q_loss(q, actions, targets)
    return np.mean(pairs, axis=0), errors


def forgets_delta(*arrays, delta=1.0, **options):
    """Leaves Huber's δ at 1 whatever it was asked to be."""
    return reference.q_loss(*arrays, **options)


def takes_delta_for_beta(*arrays, delta=1.0, **options):
    """Takes δ for the β of smooth L1, which is Huber's loss divided by δ."""
    losses, errors = reference.q_loss(*arrays, delta=delta, **options)
    return losses / (delta if options.get("loss") == "huber" else 1.0), errors


def takes_done_for_terminated(batch):
    """Takes `done` for `terminated`: a time limit then counts as the end of the world."""
    return _update(batch | {"terminated": batch["terminated"] | batch["truncated"]})


def differentiates_the_target(batch):
    """Lets the gradient flow through the target: the residual-gradient algorithm, another one."""
    targets, losses, errors, by_q, _ = _update(batch)
    slopes = by_q.sum(-1, keepdims=True)
    best = np.argmax(batch["next_q"], -1)[..., None] == np.arange(batch["q"].shape[-1])
    discounts = np.where(batch["terminated"], 0.0, batch["gamma"])[..., None]
    return targets, losses, errors, by_q, np.where(best, -discounts * slopes, 0.0)


def bootstraps_from_the_online_network(batch):
    """Bootstraps from the online network where the target network should be asked."""
    return _update(batch | {"next_q": batch["next_q_online"]})


def _update(batch):
    """Return the right update; the mutants pass wrong batches."""
    targets = call_targets(reference.q_targets, batch)
    arguments = batch["q"], batch["actions"], targets
    losses, errors = reference.q_loss(*arguments)
    gradients = reference.q_loss_gradients(*arguments)
    return targets, losses, errors, gradients, np.zeros_like(batch["next_q"])


ALL = (
    ("q_targets", masks_targets_by_multiplying),
    ("q_targets", bootstraps_at_terminations),
    ("q_targets", swaps_the_networks),
    ("q_targets", leaves_the_online_network_out),
    ("q_targets", chooses_the_last_of_equals),
    ("q_targets", is_greedy_where_the_agent_was_not),
    ("q_targets", discounts_every_window_alike),
    ("q_loss", averages_over_all_batches),
    ("q_loss", divides_by_the_weights),
    ("q_loss", leaves_the_weights_out),
    ("q_loss", multiplies_by_a_weight_of_zero),
    ("q_loss", weights_the_errors),
    ("q_loss", negates_the_errors),
    ("q_loss", squeezes_every_axis),
    ("q_loss", broadcasts_a_column),
    ("q_loss", forgets_delta),
    ("q_loss", takes_delta_for_beta),
    ("q_update", takes_done_for_terminated),
    ("q_update", differentiates_the_target),
    ("q_update", bootstraps_from_the_online_network),
)
