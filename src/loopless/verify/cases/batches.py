"""How losses and targets take a case: which arguments go by position, and calls by these names."""

from collections.abc import Mapping

# --- transitions

TARGETS = ("rewards", "terminated", "next_q")  # what `q_targets` takes by position
LOSS = ("q", "actions", "targets")  # and `q_loss`

# The members of the family, and the argument that makes each one.
MEMBERS = {"dqn": (), "double": ("next_q_online",), "sarsa": ("next_actions",)}


def call_targets(function, data: Mapping, member: str = "dqn"):
    """Call `function`, one like `q_targets`, with the arguments of one member of the family."""
    keywords = {name: data[name] for name in ("gamma", *MEMBERS[member])}
    return function(*(data[name] for name in TARGETS), **keywords)


# --- steps of a policy

PPO = ("log_probs", "old_log_probs", "advantages", "values", "returns", "entropies")
POLICY_GRADIENT = ("log_probs", "advantages", "values", "returns", "entropies")
INPUTS = ("log_probs", "values", "entropies")  # the arguments that have a gradient
ROWS = (*PPO, "old_values")

_OPTIONS = ("value_coefficient", "entropy_coefficient", "valid")
_PPO_OPTIONS = (*_OPTIONS, "clip", "value_clip", "old_values")


def call_ppo(function, data: Mapping, **options):
    """Call `function`, one like `ppo_loss`, with those of its options that are in `data`."""
    present = {name: data[name] for name in _PPO_OPTIONS if name in data}
    return function(*(data[name] for name in PPO), **present | options)


def call_policy_gradient(function, data: Mapping, **options):
    """Call `function`, one like `policy_gradient_loss`, in the same way."""
    present = {name: data[name] for name in _OPTIONS if name in data}
    return function(*(data[name] for name in POLICY_GRADIENT), **present | options)


# --- features of states

ALLO = ("features", "next_features", "other_features", "duals", "barrier")  # by position


def call_allo(function, data: Mapping):
    """Call `function`, one like `allo_loss`, with everything in `data`."""
    rest = {name: x for name, x in data.items() if name not in ALLO}
    return function(*(data[name] for name in ALLO), **rest)
