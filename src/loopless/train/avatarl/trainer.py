"""AvataRL as the commands see it: find or train a critic, make a run, go on with one.

Imports the rest of `avatarl`. Tests: `tests/train/test_avatarl_run.py`,
`tests/train/test_avatarl_commands.py`.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import Failure, Interrupted, RunInUse
from loopless.runs.folder import RunFolder
from loopless.text import dataset as datasets
from loopless.text.corpus import read_corpus
from loopless.train.avatarl import critic as avatarl_critic
from loopless.train.avatarl.config import AvataRL
from loopless.train.avatarl.run import StudentRun
from loopless.train.lm import text_data
from loopless.train.lm.config import LM
from loopless.train.lm.text_data import Material
from loopless.train.lm.trainer import export as export  # a student is a language model

# By these a critic may differ from the one that is asked for: they change nothing of it.
_IRRELEVANT = {
    "run": None, "runs": Path(), "eval_every": 0, "log_every": 1, "plot_every": 0,
    "checkpoint_every": 1, "profile": False, "tensorboard": False, "on_nan": "stop",
}  # fmt: skip


def before(config: AvataRL, train: Callable[[str, Any], Path], resume: Callable) -> AvataRL:
    """`config` with a critic: the one it names, one that is there already, or a new one.

    `train(name, config)` makes a run, `resume(path)` goes on with one.
    """
    if config.critic is not None or not config.needs_critic:
        return config
    wanted = config.critic_config()
    try:
        path, done = _found(wanted) or (None, False)
        if path is None:
            print("A critic is trained first.", file=sys.stderr)
            path = train("lm", wanted)
        elif not done:
            print(f"The critic {path} is not trained to its end yet.", file=sys.stderr)
            resume(path)
        else:
            print(f"The critic is {path}.", file=sys.stderr)
    except Interrupted as stopped:
        raise Interrupted(
            f"{stopped} The same `loopless train avatarl` again goes on with it, and then trains "
            f"the student."
        ) from None
    return replace(config, critic=path)


def _found(wanted: LM) -> tuple[Path, bool] | None:
    """A run of this critic, trained to its end if possible, and whether it is."""
    candidates = []
    for file in sorted(wanted.runs.glob("*/run.json")):
        path = file.parent
        try:
            run = RunFolder.open(path)
            if run.trainer != "lm" or _essence(run.config(LM)) != _essence(wanted):
                continue
            if not _same_text(path, wanted):
                continue
            names = Checkpoints(path).names()
            done = bool(names) and Checkpoints(path).load(kind="weights").step >= wanted.steps
            if not done:
                RunFolder.open(path, lock=True).close()
            candidates.append((path, done))
        except RunInUse:  # somebody trains it; then we train another
            continue
        except Failure:  # a run that is broken is none
            continue
    return max(candidates, key=lambda pair: pair[1], default=None)


def _essence(config: LM) -> LM:
    return replace(config, **_IRRELEVANT)


def _same_text(path: Path, wanted: LM) -> bool:
    """Whether the text is still what it was when that run was made."""
    file = path / text_data.FOLDER / datasets.ABOUT
    if wanted.tokens is not None:
        return True  # looked at when its data is opened
    if not file.is_file():
        return False
    with text_data.refusals():
        now = read_corpus(wanted.text).sha256
    return json.loads(file.read_bytes())["corpus"]["sha256"] == now


def make(config: AvataRL) -> StudentRun:
    """The run that `config` describes; its critic is named, or it has none."""
    critic = avatarl_critic.load(config) if config.critic is not None else None
    material = Material.of(config, avatarl_critic.data_of(config, critic))
    return StudentRun(config, material, critic)


def reopen(config: AvataRL, folder: Path) -> StudentRun:
    """The run in `folder`, which keeps its tokens and its critic."""
    critic = avatarl_critic.kept(config, folder)
    if critic is None and config.critic is not None:
        critic = avatarl_critic.load(config)
    material = Material.of(config, text_data.reopen(config, folder))
    return StudentRun(config, material, critic, folder)
