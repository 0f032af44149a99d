"""The trainers by name. Naming one imports nothing; using it imports that trainer alone.

To add a trainer, write a package like `train/dqn/` and enter it here: the module and name of its
config class, and the module with the functions that `trainer` lists.
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
    "avatarl": ("loopless.train.avatarl.config", "AvataRL", "loopless.train.avatarl.run"),
    "lm": ("loopless.train.lm.config", "LM", "loopless.train.lm.run"),
}


def config_class(name: str) -> type:
    """Return the config class of a trainer; raise BadConfig if there is none of that name."""
    if name not in TRAINERS:
        hint = did_you_mean(name, TRAINERS, or_list=True)
        raise BadConfig([f"no trainer is called {name!r}.{hint}"])
    module, cls, _ = TRAINERS[name]
    return getattr(import_module(module), cls)


def trainer(name: str) -> Any:
    """Return the module of a trainer, which has these functions:

    make(config)                 the run that `runs.session` trains
    export(config, weights)      arrays and a card for `loopless export`
    player(config, weights)      a player for `loopless play`, if there is anything to play
    reopen(config, folder)       an old run, if it keeps more than checkpoints in its folder
    before(config, train, resume)    the config to use, after any run that must be trained first
    """
    return import_module(TRAINERS[name][2])


def reopen(name: str, config: Any, folder: Path) -> Any:
    """Return the run that is in `folder`, before its checkpoint is restored."""
    module = trainer(name)
    return module.reopen(config, folder) if hasattr(module, "reopen") else module.make(config)
