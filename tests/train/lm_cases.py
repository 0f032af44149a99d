"""What the tests on text share: a small text, small models, runs of them in this process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from run_results import command as _command
from run_results import go

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.folder import RunFolder
from loopless.train import registry
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.config import LM

SMALL = {
    "tokenizer": "char", "layers": 1, "heads": 2, "width": 8, "block": 8, "batch": 3, "steps": 20,
    "warmup": 4, "learning_rate": 0.02, "log_every": 4, "eval_every": 8, "eval_windows": 7,
    "checkpoint_every": 8, "plot_every": 0,
}  # fmt: skip


def write_text(folder: Path, lines: int = 60) -> Path:
    """A text with something to learn in it."""
    rng = np.random.default_rng(0)
    words = ["def", "self", "return", "naïve", "x = 1", "if"]
    text = "\n".join(" ".join(rng.choice(words, 5)) for _ in range(lines))
    path = folder / "text.txt"
    path.write_text(text)
    return path


def lm(text: Path, **options) -> LM:
    return _sound(LM(text=text, **(SMALL | options)))


def avatarl(critic: Path | None, **options) -> AvataRL:
    options = SMALL | {"tokenizer": None, "top_k": 2} | options
    return _sound(AvataRL(critic=critic, **options))


def _sound(config):
    assert not config.problems(), config.problems()
    return config


def name_of(config) -> str:
    return type(config).__name__.lower()


def make(config):
    return registry.trainer(name_of(config)).make(config)


def train(root: Path, config, name: str, dies_after: int | None = None) -> Path:
    """A run from its start; it dies when the chunk after this step begins."""
    trainer = make(config)
    with RunFolder.create(root, name, name_of(config), config) as run:
        trainer.write_inputs(run.path)
        go(trainer, run, config, None, dies_after)
    return root / name


def resume(path: Path, **changes) -> Path:
    with RunFolder.open(path, lock=True) as run:
        config = replace(run.config(registry.config_class(run.trainer)), **changes)
        trainer = registry.reopen(run.trainer, config, path)
        found = Checkpoints(path).load(template=trainer.arrays())
        go(trainer, run, config, found, None)
    return path


def weights_of(path: Path) -> dict[str, np.ndarray]:
    return Checkpoints(path).load("latest", kind="weights").arrays


def command(*words) -> int:
    return _command(*words)
