"""Named batches of transitions that tell right Q-learning from wrong, as plain float64 arguments.

`transitions` makes the arguments of `q_targets` and `q_loss` at once; `situations` lists the
batches that matter, and `FIXTURE` is one small enough to check by hand.
"""

import numpy as np

from loopless.verify.cases.rollouts import Situation

TARGETS = ("rewards", "terminated", "next_q")  # what `q_targets` takes by position
LOSS = ("q", "actions", "targets")  # and `q_loss`

# How to call each member of the family: the argument that makes it one.
MEMBERS = {"dqn": (), "double": ("next_q_online",), "sarsa": ("next_actions",)}

FIXTURE = {
    "gamma": 0.9,
    "q": np.array([[1.0, 2, 0], [0, 0, 0], [3, -1, 2], [5, 5, 5]]),
    "actions": np.array([1, 0, 2, 0]),
    "rewards": np.array([1, -1, 0.5, 2]),
    "terminated": np.array([False, True, False, False]),
    "truncated": np.array([False, False, True, False]),
    "next_q_online": np.array([[2.0, 1, 0], [9, 9, 9], [0, 4, 1], [1, 1, 1]]),
    "next_q": np.array([[0.5, 3, 1], [100, 100, 100], [2, -2, 7], [4, 6, 5]]),
    "next_actions": np.array([1, 2, 2, 0]),
}


def transitions(
    shape: tuple[int, ...],
    actions: int,
    seed: int,
    *,
    terminated: float = 0.3,
    truncated: float = 0.3,
    gamma: float = 0.9,
) -> dict:
    """Arguments for samples [..., B] with so many actions, with ends at the given rates.

    The targets stand apart from the rest: they are numbers like any, for `q_loss` alone.
    """
    rng = np.random.default_rng(seed)
    return {
        "q": rng.standard_normal((*shape, actions)),
        "actions": rng.integers(0, actions, shape),
        "rewards": rng.standard_normal(shape),
        "terminated": rng.random(shape) < terminated,
        "truncated": rng.random(shape) < truncated,
        "next_q": rng.standard_normal((*shape, actions)),
        "next_q_online": rng.standard_normal((*shape, actions)),
        "next_actions": rng.integers(0, actions, shape),
        "targets": 2.0 * rng.standard_normal(shape),
        "weights": rng.uniform(0.1, 1.0, shape),
        "gamma": gamma,
    }


def call_targets(function, data: dict, member: str = "dqn"):
    """`function`, one like `q_targets`, on the arguments of one member of the family."""
    keywords = {name: data[name] for name in ("gamma", *MEMBERS[member])}
    return function(*(data[name] for name in TARGETS), **keywords)


def call_loss(function, data: dict, **options):
    """`function`, one like `q_loss`, with the weights in `data` if there are any."""
    return function(*(data[name] for name in LOSS), weights=data.get("weights"), **options)


def situations() -> list[Situation]:
    """The batches that between them catch every mistake in `verify.mutants.q_learning`."""
    unread = transitions((2, 6), 3, 1, terminated=0.5)
    unread["next_q"][unread["terminated"]] = np.nan
    unread["next_q_online"][unread["terminated"]] = np.inf

    ties = transitions((7,), 4, 2)
    ties["next_q_online"] = np.round(ties["next_q_online"])

    windows = transitions((3, 5), 3, 3)
    windows["gamma"] = 0.9 ** np.random.default_rng(4).integers(1, 6, (3, 5))

    unweighted = transitions((4, 6), 3, 5)
    del unweighted["weights"]

    weightless = transitions((2, 6), 3, 6)
    weightless["weights"][:, ::2] = 0.0
    weightless["targets"][:, 0] = np.nan

    return [
        Situation("the fixture", FIXTURE | {"targets": np.array([1.45, -1, -1.3, 5.6])}),
        Situation("several batches", transitions((3, 8), 2, 7)),
        Situation("NaN and infinity after a terminal state", unread),
        Situation("equal values", ties),
        Situation("windows of several lengths", windows),
        Situation("batches without weights", unweighted),
        Situation("weights of 0, on NaN", weightless),
        Situation("one sample", transitions((1,), 3, 8, terminated=0.0)),
        Situation("batches of one sample", transitions((3, 1), 3, 9, terminated=0.0)),
        Situation("one action", transitions((5,), 1, 10)),
    ]
