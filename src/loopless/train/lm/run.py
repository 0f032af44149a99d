"""A run on text, of `lm` or of `avatarl`: training chunk by chunk, validation, metrics.

AvataRL's student is the same run with another objective and an `Advisor`, its critic
(`avatarl/critic.py`), which adds its own outputs for the windows to each batch.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import jax
import numpy as np

from loopless.nets.gpt.model import GPT, parameters
from loopless.nets.gpt.weights import gpt2_form
from loopless.refusals import printable
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress import quantities
from loopless.runs.progress.clock import Clock
from loopless.train.engine.run import Run
from loopless.train.engine.schedules import Chunks
from loopless.train.engine.settings import as_program, traced_settings
from loopless.train.lm.algorithm import (
    Algorithm,
    Learner,
    Objective,
    language_loss,
    load_model,
    validation_loss,
)
from loopless.train.lm.config import LM, TextOptions
from loopless.train.lm.data import TextData, as_bad_config, read_data, reopen_data, save_data

USE = (
    "A model in the form of GPT-2, with GPT-2's names. This file as config.json and the arrays as "
    "model.safetensors, together in one folder, are what other tools read. Its tokens are those of "
    "data/tokenizer.json in the run's folder."
)
TRIGRAMS = ("token_trigram", "character_trigram")


class Advisor(Protocol):
    """A frozen model that a run learns from, in addition to the text."""

    model: GPT  # whose loss on the validation windows is reported, too
    constants: Any  # what it hands to the objective, the same for every batch
    advises: bool  # if False, its loss is only reported for comparison
    updates_per_call: int  # the most that it can advise on in one compiled call

    def advise(self, windows: np.ndarray, starts: np.ndarray) -> dict[str, Any]:
        """Return what it adds to the batches of windows [K, accumulate, batch, block + 1].

        `starts` are the places in the text of the first windows; later windows are not read.
        """
        ...

    def save(self, run_folder: Path) -> None:
        """Write the model into the folder of the run."""
        ...


class TextRun(Run):
    """A run that trains a model on windows of tokens. `folder`: that of a run to resume."""

    shown = "loss", "validation_loss", "tokens_per_second"
    judged_by, least_is_best = "validation_loss", True

    def __init__(
        self,
        config: TextOptions,
        data: TextData,
        objective: Objective = language_loss,
        advisor: Advisor | None = None,
        folder: Path | None = None,
    ) -> None:
        super().__init__(config, Chunks(config.steps, config.log_every), 1)
        self.data, self.advisor = data, advisor
        self.constants = () if advisor is None else advisor.constants
        self.algorithm = Algorithm(config, data.dataset.vocabulary, objective)
        self.per_call = config.log_every
        if advisor is not None and advisor.advises:
            self.per_call = min(self.per_call, advisor.updates_per_call)
        with as_bad_config():
            self.state: Learner = jax.jit(self.algorithm.init)(jax.random.key(config.seed))
        self.settings = traced_settings(config)
        self._chunk = jax.jit(as_program(self.algorithm, "chunk"), donate_argnums=0)
        self._validate = jax.jit(validation_loss)
        self._validation = _pad_into_groups(data.validation, config.batch)
        self._baselines = None if folder is None else self._compute_baselines(folder)

    @property
    def learner(self) -> Learner:
        return self.state

    def write_inputs(self, folder: Path) -> None:
        """Write the tokens, the baselines and the advisor into the folder of this new run."""
        print(printable(self.introduction()), file=sys.stderr)
        save_data(self.data.dataset, folder)
        self._baselines = self._compute_baselines(folder)
        if self.advisor is not None:
            self.advisor.save(folder)

    def _compute_baselines(self, folder: Path | None) -> dict[str, Any]:
        """Return the losses that the model is compared with."""
        row = self.data.baselines(folder)
        if self.advisor is None:
            return row
        loss = float(self._validate(self.advisor.model, *self._validation))
        return row | self.data.loss_metrics("critic", loss)

    def batches(self, first: int, count: int, clock: Clock) -> dict[str, Any]:
        """Return the batches of `count` updates, from number `first` on.

        Arrays are [K, accumulate, batch, ...]. K is always `per_call`, so that one compiled program
        serves all calls; batches after the first `count` are not read.
        """
        config, source = self.config, self.data.windows
        windows = source.batches(first, config.windows, self.per_call)
        windows = windows.reshape(self.per_call, config.accumulate, config.batch, -1)
        if self.advisor is None or not self.advisor.advises:
            return {"windows": windows}
        with clock("critic"):
            starts = source.starts(first, config.windows, count).reshape(-1)
            return {"windows": windows, **self.advisor.advise(windows, starts)}

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        """Train one chunk, and return its metrics."""
        count = self.chunks.after(self.event)
        began, sums = perf_counter(), []
        for first in range(self.event, self.event + count, self.per_call):
            updates = min(self.per_call, self.event + count - first)
            with clock("data"):
                batches = self.batches(first, updates, clock)
            with clock("learn"):
                arguments = self.constants, batches, np.int32(first), np.int32(updates)
                self.state, metrics = self._chunk(self.state, self.settings, *arguments)
                sums.append(jax.block_until_ready(metrics))
        self.event += count
        seconds = perf_counter() - began
        with clock("log"):
            means = {name: sum(float(part[name]) for part in sums) / count for name in sums[0]}
            return means | {
                "tokens": self.event * self._tokens_per_update,
                "epoch": self.data.windows.epoch(self.event, self.config.windows),
                "learning_rate": float(self.algorithm.learning_rate(max(0, self.event - 1), np)),
                "updates": int(self.state.updates),
                "skipped_updates": int(self.state.skipped),
                "tokens_per_second": count * self._tokens_per_update / seconds,
                "updates_per_second": count / seconds,
            }

    @property
    def _tokens_per_update(self) -> int:
        """The number of targets in an update."""
        return self.config.windows * self.config.block

    def evaluate(self) -> Mapping[str, Any]:
        """Return the metrics of a validation."""
        if self._baselines is None:
            self._baselines = self._compute_baselines(None)
        loss = float(self._validate(self.state.weights, *self._validation))
        row = self.data.loss_metrics("validation", loss)
        return row | {"tokens": self.event * self._tokens_per_update} | self._baselines

    def _tree(self) -> dict[str, Any]:
        rest = self.state._replace(weights=None)
        return {"weights": self.state.weights, "learner": rest, "event": np.int64(self.event)}

    def restore(self, checkpoint: Checkpoint) -> str:
        """Continue from a checkpoint; return in words what could not be restored: nothing."""
        tree = trees.unflatten(self._tree(), checkpoint.arrays)
        self.state = tree["learner"]._replace(weights=tree["weights"])
        self.event = int(tree["event"])
        return ""

    def introduction(self) -> str:
        """Return a sentence on the model and the text."""
        data, windows = self.data.dataset, self.data.windows
        corpus = data.about["corpus"]
        size = f", {quantities.count(corpus['bytes'])}B" if "bytes" in corpus else ""
        kind = f"{data.tokenizer.kind} tokenizer, " if data.tokenizer else ""
        epochs = self.total * self._tokens_per_update / windows.tokens_per_epoch
        return (
            f"{parameters(self.state.weights):,} parameters. {corpus['name']}{size}: {kind}"
            f"{data.vocabulary:,} tokens, {len(data.train):,} to train on; {epochs:.2g} epochs."
        )

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """Return the result in words, from the last metrics; None if they do not tell."""
        if "validation_loss" not in last:
            return None
        units = {"_loss": "nats per token", "_per_character": "nats per character"}
        sentences = []
        for ending, unit in units.items():
            others = [
                f"{name.replace('_', ' ')} {last[f'{name}{ending}']:.3f}"
                for name in ("critic", *TRIGRAMS)
                if f"{name}{ending}" in last
            ]
            beside = f" ({', '.join(others)})" if others else ""
            if f"validation{ending}" in last:
                sentences.append(f"{last[f'validation{ending}']:.3f} {unit}{beside}")
        return f"Validation cross-entropy {'; '.join(sentences)}."


def _pad_into_groups(windows: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows [groups, batch, ...], the last group padded, and which of them are real."""
    groups = -(-len(windows) // batch)
    padded = np.zeros((groups * batch, *windows.shape[1:]), windows.dtype)
    padded[: len(windows)] = windows
    real = np.arange(groups * batch) < len(windows)
    return padded.reshape(groups, batch, -1), real.reshape(groups, batch)


# --- what the commands call ----------------------------------------------------------------------


def make(config: LM) -> TextRun:
    """Return the run that `config` describes."""
    return TextRun(config, TextData.of(config, read_data(config)))


def reopen(config: LM, folder: Path) -> TextRun:
    """Return the run in `folder`, which keeps its tokens."""
    return TextRun(config, TextData.of(config, reopen_data(config, folder)), folder=folder)


def export(config: TextOptions, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict]:
    """Return the arrays of a model by GPT-2's names, and a card that says how to use them."""
    arrays, card = gpt2_form(load_model(config, weights))
    return arrays, card | {"use": USE}
