"""A run of AvataRL as the commands see it: a run on text (`lm/run.py`) that has a critic.

Without --critic, `before` looks for a run that trained the same critic, or trains one.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopless.files import atomic
from loopless.refusals import printable
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import Failure, Interrupted
from loopless.runs.folder import RunFolder
from loopless.text.corpus import read_corpus
from loopless.text.dataset import ABOUT
from loopless.train.avatarl import critic as critics
from loopless.train.avatarl.algorithm import objective
from loopless.train.avatarl.config import AvataRL
from loopless.train.avatarl.critic import Critic, CriticAdvisor
from loopless.train.lm.config import LM
from loopless.train.lm.data import FOLDER, TextData, as_bad_config, reopen_data
from loopless.train.lm.run import TextRun
from loopless.train.lm.run import export as export  # a student is a language model

# A critic that differs in these settings can be reused: they do not affect what is learned.
_IRRELEVANT = {
    "run": None, "runs": Path(), "eval_every": 0, "log_every": 1, "plot_every": 0,
    "checkpoint_every": 1, "profile": False, "tensorboard": False, "on_nan": "stop",
}  # fmt: skip


def make(config: AvataRL) -> TextRun:
    """Return the run that `config` describes, with the critic that it names, if any."""
    critic = None if config.critic is None else critics.load(config, config.critic)
    data = TextData.of(config, critics.read_student_data(config, critic))
    return student_run(config, data, critic)


def reopen(config: AvataRL, folder: Path) -> TextRun:
    """Return the run in `folder`, which keeps its tokens and a copy of its critic."""
    critic = critics.load_copy(config, folder)
    if critic is None and config.critic is not None:
        critic = critics.load(config, config.critic)
    data = TextData.of(config, reopen_data(config, folder))
    return student_run(config, data, critic, folder)


def student_run(
    config: AvataRL, data: TextData, critic: Critic | None, folder: Path | None = None
) -> TextRun:
    """Return the run of a student on these data; `folder` is that of a run to be resumed."""
    advisor = None if critic is None else CriticAdvisor(config, critic, data.windows)
    return TextRun(config, data, objective, advisor, folder)


# --- finding a critic, or training one first -----------------------------------------------------


def before(
    config: AvataRL, train: Callable[[str, Any], Path], resume: Callable[[Path], Any]
) -> AvataRL:
    """Return `config` with a critic: the one that it names, one that exists, or a new one.

    `train(name, config)` trains a new run, `resume(path)` continues one.
    """
    if config.critic is not None or not config.needs_critic:
        return config
    wanted = config.critic_config()
    try:
        path, is_done = _find_run(wanted) or (None, False)
        if path is None:
            print("A critic is trained first.", file=sys.stderr)
            path = train("lm", wanted)
        elif not is_done:
            print(printable(f"The critic {path} is not fully trained yet."), file=sys.stderr)
            resume(path)
        else:
            print(printable(f"The critic is {path}."), file=sys.stderr)
    except Interrupted as stopped:
        raise Interrupted(
            f"{stopped} The same `loopless train avatarl` again continues it, and then trains the "
            f"student."
        ) from None
    return replace(config, critic=path)


def _find_run(wanted: LM) -> tuple[Path, bool] | None:
    """Return a run of this critic, if possible fully trained, and whether it is; None if none."""
    candidates = []
    for file in sorted(wanted.runs.glob("*/run.json")):
        path = file.parent
        try:
            run = RunFolder.open(path)
            if run.trainer != "lm" or not _learn_the_same(run.config(LM), wanted):
                continue
            if not _has_same_text(path, wanted):
                continue
            checkpoints = Checkpoints(path)
            is_done = bool(checkpoints.names()) and (
                checkpoints.load(kind="weights").step >= wanted.steps
            )
            if not is_done:
                RunFolder.open(path, lock=True).close()
            candidates.append((path, is_done))
        except Failure:  # the run is broken, or another process is training it
            continue
    return max(candidates, key=lambda pair: pair[1], default=None)


def _learn_the_same(config: LM, wanted: LM) -> bool:
    return replace(config, **_IRRELEVANT) == replace(wanted, **_IRRELEVANT)


def _has_same_text(path: Path, wanted: LM) -> bool:
    """Return whether the text is still what it was when the run in `path` was made."""
    if wanted.tokens is not None:
        return True  # checked when its data is opened
    about = path / FOLDER / ABOUT
    if not about.is_file():
        return False
    with as_bad_config():
        sha256 = read_corpus(wanted.text).sha256
    try:
        return json.loads(atomic.read_small(about, 1 << 20))["corpus"]["sha256"] == sha256
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
