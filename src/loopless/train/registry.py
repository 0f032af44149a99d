"""The trainers by name. Naming one imports nothing; using it imports that one alone.

A trainer's config class says what it can be told, and `make` gives what `runs.session` trains.
Imports the standard library. Tests: `tests/train/test_commands.py`.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from loopless.refusals import did_you_mean
from loopless.runs.failures import BadConfig

TRAINERS = {
    "dqn": ("loopless.train.dqn.config", "DQN", "loopless.train.dqn"),
    "ppo": ("loopless.train.ppo.config", "PPO", "loopless.train.ppo"),
    "allo": ("loopless.train.allo.config", "ALLO", "loopless.train.allo.run"),
    "avatarl": (
        "loopless.train.avatarl.config",
        "AvataRL",
        "loopless.train.avatarl.run",
    ),
    "lm": ("loopless.train.lm.config", "LM", "loopless.train.lm.run"),
}


def config_class(name: str) -> type:
    """The config of a trainer; BadConfig if there is none of that name."""
    if name not in TRAINERS:
        hint = did_you_mean(name, TRAINERS, or_list=True)
        raise BadConfig([f"no trainer is called {name!r}.{hint}"])
    module, cls, _ = TRAINERS[name]
    return getattr(import_module(module), cls)


def trainer(name: str) -> Any:
    """The module of a trainer: `make(config)`, `player(config, weights)`, `policy(config, …)`.

    Those that keep more than checkpoints in the folder of a run have `reopen(config, folder)`, too.
    """
    return import_module(TRAINERS[name][2])


def reopened(name: str, config: Any, folder: Path) -> Any:
    """The run in a folder, as far as its config and what it keeps there tell."""
    module = trainer(name)
    return module.reopen(config, folder) if hasattr(module, "reopen") else module.make(config)
