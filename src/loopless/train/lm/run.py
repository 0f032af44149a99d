"""A run on text, of either trainer: windows handed over a chunk at a time, validation, rows.

Imports `lm`, `text_data` and `run`. Tests: `tests/train/test_lm_runs.py`,
`tests/train/test_avatarl_run.py`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import numpy as np

from loopless.nets.gpt.model import parameters
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress import quantities
from loopless.runs.progress.clock import Clock
from loopless.train.engine import run
from loopless.train.engine.schedules import Chunks
from loopless.train.lm import text_data
from loopless.train.lm.algorithm import (
    Algorithm,
    Learner,
    Objective,
    language_loss,
    validation_loss,
)
from loopless.train.lm.text_config import TextConfig
from loopless.train.lm.text_data import Material


class TextRun(run.Run):
    """A model that learns from windows of tokens. `folder` is that of a run that goes on."""

    shown = "loss", "validation_loss", "tokens_per_second"
    judged_by, least_is_best = "validation_loss", True

    def __init__(
        self,
        config: TextConfig,
        material: Material,
        folder: Path | None = None,
        objective: Objective = language_loss,
        fixed: Any = (),
    ) -> None:
        super().__init__(config, Chunks(config.steps, config.log_every), 1)
        self.material, self.fixed = material, fixed
        self.algorithm = Algorithm(config, material.dataset.vocabulary, objective)
        self.per_call = config.log_every  # updates of one call
        with text_data.refusals():
            self._learner: Learner = jax.jit(self.algorithm.init)(jax.random.key(config.seed))
        self.program = jax.jit(self.algorithm.chunk, donate_argnums=0)
        self._validate = jax.jit(validation_loss)
        self._groups = _grouped(material.validation, config.batch)
        self._baselines: dict[str, Any] | None = None
        if folder is not None:
            self._baselines = self._compared(folder)

    @property
    def learner(self) -> Learner:
        return self._learner

    def settle(self, folder: Path) -> None:
        """Keep the tokens in the folder of this run, and what it is compared with."""
        print(self.begins(), file=sys.stderr)
        text_data.keep(self.material.dataset, folder)
        self._baselines = self._compared(folder)

    def _compared(self, folder: Path | None) -> dict[str, Any]:
        return self.material.kept_baselines(folder)

    def rows(self, first: int, count: int, clock: Clock) -> dict[str, Any]:
        """What `count` updates from number `first` on learn from, [K, accumulate, batch, ...].

        K is always `per_call`, so that the program is the same; the last are not looked at.
        """
        config = self.config
        windows = self.material.windows.batches(first, config.windows, self.per_call)
        return {"windows": windows.reshape(self.per_call, config.accumulate, config.batch, -1)}

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        count = self.chunks.after(self.event)
        began, sums = perf_counter(), []
        for first in range(self.event, self.event + count, self.per_call):
            updates = min(self.per_call, self.event + count - first)
            with clock("data"):
                rows = self.rows(first, updates, clock)
            with clock("learn"):
                args = self.fixed, rows, np.int32(first), np.int32(updates)
                self._learner, told = self.program(self._learner, *args)
                sums.append(jax.block_until_ready(told))
        self.event += count
        seconds = perf_counter() - began
        with clock("log"):
            means = {name: sum(float(part[name]) for part in sums) / count for name in sums[0]}
            return self.describe(means) | {
                "tokens_per_second": count * self._tokens / seconds,
                "updates_per_second": count / seconds,
            }

    @property
    def _tokens(self) -> int:
        """Targets of an update."""
        return self.config.windows * self.config.block

    def describe(self, report: Any) -> dict[str, Any]:
        return report | {
            "tokens": self.event * self._tokens,
            "epoch": self.material.windows.epoch(self.event, self.config.windows),
            "learning_rate": float(self.algorithm.learning_rate(max(0, self.event - 1), np)),
            "updates": int(self._learner.updates),
            "skipped_updates": int(self._learner.skipped),
        }

    def evaluate(self) -> Mapping[str, Any]:
        if self._baselines is None:
            self._baselines = self._compared(None)
        loss = float(self._validate(self._learner.weights, *self._groups))
        row = self.material.losses("validation", loss)
        return row | {"tokens": self.event * self._tokens} | self._baselines

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        weights, rest = self._learner.parted()
        return {"weights": weights, "learner": rest, "event": np.int64(self.event)}

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        self._learner = found["learner"].with_(found["weights"])
        self.event = int(found["event"])
        return ""

    def begins(self) -> str:
        """What is about to be trained, in words."""
        data, windows = self.material.dataset, self.material.windows
        corpus = data.about["corpus"]
        size = f", {quantities.count(corpus['bytes'])}B" if "bytes" in corpus else ""
        kind = f"{data.tokenizer.kind} tokenizer, " if data.tokenizer else ""
        return (
            f"{parameters(self._learner.weights):,} parameters. {corpus['name']}{size}: {kind}"
            f"{data.vocabulary:,} tokens, {len(data.train):,} to train on; "
            f"{self.total * self._tokens / windows.tokens_per_epoch:.2g} epochs."
        )

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """What came out, in words."""
        unit = "character" if "validation_per_character" in last else "token"
        ending = "_per_character" if unit == "character" else "_loss"
        if f"validation{ending}" not in last:
            return None
        others = [
            f"{name.removesuffix(ending).replace('_', ' ')} {last[name]:.3f}"
            for name in (f"{one}{ending}" for one in ("critic", *TRIGRAMS))
            if name in last
        ]
        return (
            f"Validation cross-entropy {last[f'validation{ending}']:.3f} nats per {unit} "
            f"({', '.join(others)})."
        )


TRIGRAMS = ("token_trigram", "character_trigram")


def _grouped(windows: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows [groups, batch, ...], the last padded, and which of them are real."""
    groups = -(-len(windows) // batch)
    padded = np.zeros((groups * batch, *windows.shape[1:]), windows.dtype)
    padded[: len(windows)] = windows
    real = np.arange(groups * batch) < len(windows)
    return padded.reshape(groups, batch, -1), real.reshape(groups, batch)
