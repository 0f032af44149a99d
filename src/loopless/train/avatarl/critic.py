"""The critic of an AvataRL run: loaded from a run or a file, held to the student's tokens, kept.

A student's folder holds its critic, `critic.safetensors` and its card, so that a resumed run asks
the same one whatever became of the run that it came from. Imports `lm`, `text_data` and `runs`.
Tests: `tests/train/test_avatarl_run.py`.
"""

from pathlib import Path
from typing import Any, NamedTuple

from loopless.nets.gpt.model import GPT
from loopless.nets.gpt.weights import gpt2_form, read_gpt2
from loopless.runs.checkpoint import Checkpoints, export_weights
from loopless.runs.failures import BadConfig
from loopless.runs.folder import RunFolder
from loopless.text.dataset import Dataset
from loopless.text.tokenizer import Tokenizer
from loopless.train import registry
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm import text_data
from loopless.train.lm.algorithm import model_of
from loopless.train.lm.text_config import Prepared

KEPT = "critic.safetensors"


class Critic(NamedTuple):
    """A frozen model, and what its tokens mean."""

    name: str
    model: GPT
    tokenizer: Tokenizer | None
    data: Any = None  # () → Dataset that it was trained on
    prepared: Prepared | None = None  # how that was asked for


def load(config: AvataRL) -> Critic:
    """The critic that `config` names."""
    path = config.critic
    assert path is not None
    if path.suffix == ".safetensors":
        with text_data.refusals():
            return Critic(str(path), read_gpt2(path, **_options(config)), None)
    run = RunFolder.open(path)
    if run.trainer not in ("lm", "avatarl"):
        raise BadConfig([f"critic {path} is a run of {run.trainer}; name one of lm, or avatarl."])
    own = run.config(registry.config_class(run.trainer))
    checkpoints = Checkpoints(path)
    name = config.critic_checkpoint
    if name == "best" and checkpoints.best() is None:
        name = "latest"
    arrays = checkpoints.load(name, kind="weights").arrays
    model = model_of(own, {name.removeprefix("weights/"): x for name, x in arrays.items()})
    with text_data.refusals():
        tokenizer = text_data.tokenizer_of(path)
    return Critic(str(path), model, tokenizer, lambda: text_data.reopen(own, path), own.prepared)


def keep(critic: Critic, folder: Path) -> None:
    """Put the critic into its student's folder."""
    export_weights(folder / KEPT, *gpt2_form(critic.model))


def kept(config: AvataRL, folder: Path) -> Critic | None:
    """The critic in a student's folder, if it is there."""
    if not (folder / KEPT).is_file():
        return None
    with text_data.refusals():
        return Critic(str(folder / KEPT), read_gpt2(folder / KEPT, **_options(config)), None)


def _options(config: AvataRL) -> dict[str, Any]:
    return {"compute": None if config.compute == "float32" else config.compute}


def data_of(config: AvataRL, critic: Critic | None) -> Dataset:
    """What the student learns from: what it is told to, or else what the critic learned from.

    BadConfig with all that keeps the two from sharing tokens.
    """
    if critic is None:
        return text_data.read(config)
    problems = []
    made, model, asked = critic.tokenizer, critic.model, config.prepared
    theirs = critic.data if asked == critic.prepared or _leaves_it(asked) else None
    # A vocabulary that is asked for is the most that a tokenizer may learn.
    most = critic.prepared.vocabulary if critic.prepared else None
    if model.block < config.block:
        problems.append(
            f"critic {critic.name} sees {model.block} tokens at once, and block is {config.block}. "
            f"Use --block {model.block} or less."
        )
    if asked.vocabulary not in (None, model.vocabulary, most):
        problems.append(_another(critic, f"vocabulary={config.vocabulary:,}"))
    if config.tokenizer is not None and made is not None and config.tokenizer != made.kind:
        problems.append(_another(critic, f"tokenizer={config.tokenizer}"))
    if theirs is None and asked.tokens is None and (asked.text is None or made is None):
        problems.append(
            f"critic {critic.name} brings no tokenizer of ours and no text. Pass --tokens FILE, "
            f"made with its tokens."
        )
    if problems:
        raise BadConfig(problems)
    data = theirs() if theirs is not None else text_data.read(config, made)
    if data.vocabulary != model.vocabulary:
        raise BadConfig([_another(critic, f"{data.vocabulary:,} tokens")])
    other = data.tokenizer
    if made is not None and other is not None and list(made.pieces) != list(other.pieces):
        raise BadConfig([_another(critic, f"those of {config.tokenizer_file}")])
    return data


def _leaves_it(asked: Prepared) -> bool:
    """Whether the choice of text or tokens is left to the critic."""
    return asked.tokens is None and asked.text is None


def _another(critic: Critic, asked: str) -> str:
    kind = f" of a {critic.tokenizer.kind} tokenizer" if critic.tokenizer else ""
    return (
        f"student and critic must share one vocabulary, token for token: critic {critic.name} has "
        f"{critic.model.vocabulary:,} tokens{kind}, and the student is to have {asked}. Name a "
        f"critic of those tokens, or leave the choice of tokens to this one."
    )
