"""The critic of an AvataRL run: loading it, advising a student with it, and copying it.

A student's folder holds a copy of its critic, `critic.safetensors` with a card, so that a resumed
run uses the same critic even if the critic's own run has changed or is gone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from loopless.files import checksums
from loopless.nets.gpt.model import GPT
from loopless.nets.gpt.weights import gpt2_form, read_gpt2
from loopless.process import free_memory_bytes
from loopless.runs.checkpoint import export_weights, load_chosen
from loopless.runs.failures import BadConfig, BadRun, writing
from loopless.runs.folder import RunFolder
from loopless.runs.progress.quantities import size
from loopless.text.dataset import Dataset
from loopless.text.tokenizer import Tokenizer
from loopless.text.windows import Windows
from loopless.train import registry
from loopless.train.avatarl.algorithm import critic_streams
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.algorithm import load_model
from loopless.train.lm.config import DataSettings
from loopless.train.lm.data import as_bad_config, load_tokenizer, read_data, reopen_data

COPY = "critic.safetensors"
COPY_FILES = COPY, "critic.json"
MAX_STREAM_BYTES = 1 << 28  # in one call of the program


class Critic(NamedTuple):
    """A frozen model, and what its tokens mean."""

    name: str
    model: GPT
    tokenizer: Tokenizer | None = None
    read_data: Callable[[], Dataset] | None = None  # opens the data that it was trained on
    data_settings: DataSettings | None = None  # the settings that this data was prepared with


# --- loading a critic, and the data that it shares with its student ------------------------------


def load(config: AvataRL, path: Path) -> Critic:
    """Load the critic from the run or the file of weights that `config` names."""
    if path.suffix == ".safetensors":
        return _load_weights(config, path)
    run = RunFolder.open(path)
    if run.trainer not in ("lm", "avatarl"):
        raise BadConfig(
            [f"critic {path} is a run of {run.trainer}; name a run of lm or of avatarl."]
        )
    critic_config = run.config(registry.config_class(run.trainer))
    arrays = load_chosen(run, critic_config, config.critic_checkpoint).arrays
    weights = {name.removeprefix("weights/"): array for name, array in arrays.items()}
    with as_bad_config():
        tokenizer = load_tokenizer(path)
    return Critic(
        str(path),
        load_model(critic_config, weights),
        tokenizer,
        lambda: reopen_data(critic_config, path),
        critic_config.data_settings,
    )


def load_copy(config: AvataRL, student_folder: Path) -> Critic | None:
    """Load the copy of the critic in a student's folder, if there is one."""
    path = student_folder / COPY
    if not path.is_file():
        return None
    try:
        changed = checksums.changed(student_folder, COPY_FILES, checksums.read(student_folder))
    except (ValueError, OSError) as error:
        raise BadRun(f"run: the critic of {student_folder} cannot be checked: {error}.") from None
    if changed:
        raise BadRun(
            f"run: {', '.join(changed)} in {student_folder} differ from their checksums in "
            f"{checksums.NAME}. Restore them from a copy."
        )
    return _load_weights(config, path)


def _load_weights(config: AvataRL, path: Path) -> Critic:
    compute = None if config.compute == "float32" else config.compute
    with as_bad_config():
        return Critic(str(path), read_gpt2(path, compute=compute))


def read_student_data(config: AvataRL, critic: Critic | None) -> Dataset:
    """Return what the student learns from: the data that `config` names, or else the critic's.

    Raises BadConfig with everything that keeps student and critic from sharing their tokens.
    """
    if critic is None:
        return read_data(config)
    wanted, tokenizer, vocabulary = config.data_settings, critic.tokenizer, critic.model.vocabulary
    names_no_data = wanted.text is None and wanted.tokens is None
    read_critic_data = None
    if names_no_data or wanted == critic.data_settings:
        read_critic_data = critic.read_data
    # A tokenizer may have learned fewer tokens than its run allowed; both numbers are right.
    allowed_by_run = critic.data_settings.vocabulary if critic.data_settings else None
    problems = []
    if critic.model.block < config.block:
        problems.append(
            f"critic {critic.name} sees {critic.model.block} tokens at once, and block is "
            f"{config.block}. Use --block {critic.model.block} or less."
        )
    if wanted.vocabulary not in (None, vocabulary, allowed_by_run):
        problems.append(_describe_mismatch(critic, f"vocabulary={wanted.vocabulary:,}"))
    if wanted.tokenizer is not None and tokenizer and wanted.tokenizer != tokenizer.kind:
        problems.append(_describe_mismatch(critic, f"tokenizer={wanted.tokenizer}"))
    can_tokenize = wanted.text is not None and tokenizer is not None
    if read_critic_data is None and wanted.tokens is None and not can_tokenize:
        problems.append(
            f"critic {critic.name} has neither a tokenizer of ours nor a text. Pass --tokens FILE "
            f"with tokens of its vocabulary."
        )
    if problems:
        raise BadConfig(problems)
    dataset = read_data(config, tokenizer) if read_critic_data is None else read_critic_data()
    if dataset.vocabulary != vocabulary:
        raise BadConfig([_describe_mismatch(critic, f"{dataset.vocabulary:,} tokens")])
    if tokenizer and dataset.tokenizer and list(tokenizer.pieces) != list(dataset.tokenizer.pieces):
        raise BadConfig([_describe_mismatch(critic, f"those of {config.tokenizer_file}")])
    return dataset


def _describe_mismatch(critic: Critic, student_tokens: str) -> str:
    kind = f" of a {critic.tokenizer.kind} tokenizer" if critic.tokenizer else ""
    return (
        f"student and critic must share one vocabulary, token for token: critic {critic.name} has "
        f"{critic.model.vocabulary:,} tokens{kind}, but the student is to have {student_tokens}. "
        f"Name a critic with those tokens, or leave the choice of tokens to this critic."
    )


# --- advising a student --------------------------------------------------------------------------


class Streams:
    """Computes the streams of windows (see `critic_streams`), in groups of `batch` windows.

    The same program is used with a cache and without one, and the windows of a group do not
    influence each other: a cached answer equals one computed again, bit for bit.
    """

    def __init__(self, model: GPT, block: int, batch: int, groups: int) -> None:
        self.model, self.batch, self.groups = model, batch, groups
        self.shape = block, model.tokens.shape[1]
        self._program = jax.jit(critic_streams)

    def of(self, windows: np.ndarray, starts: np.ndarray) -> Any:
        """Return the streams of windows [n, block + 1], n ≤ groups · batch.

        The result is [groups · batch, block, width]; only the first n mean anything.
        """
        groups, shape = -(-len(windows) // self.batch), (self.groups, self.batch, -1)
        inputs = np.zeros((self.groups * self.batch, self.shape[0]), np.int32)
        inputs[: len(windows)] = windows[:, :-1]
        streams = self._program(self.model, inputs.reshape(shape), np.int32(groups))
        return streams.reshape(-1, *self.shape)


class CachedStreams:
    """`Streams` with a cache: the answer to each window is computed once and kept."""

    def __init__(self, streams: Streams, windows: Windows) -> None:
        if windows.order != "shuffled":
            raise BadConfig(
                [f"cache_critic needs aligned windows (order=shuffled); order is {windows.order}."]
            )
        shape = windows.count, *streams.shape
        needed, free = 4 * int(np.prod(shape)), free_memory_bytes()
        if free is not None and needed > free:
            memory = f"{windows.count:,} windows × {streams.shape} float32 need {size(needed)}"
            advice = "Leave it out, or train on less text."
            raise BadConfig([f"cache_critic: {memory}; {size(free)} is free. {advice}"])
        self.streams, self.windows = streams, windows
        self._cache = np.empty(shape, np.float32)  # the system hands out pages as they are written
        self._is_cached = np.zeros(windows.count, bool)

    def of(self, windows: np.ndarray, starts: np.ndarray) -> Any:
        """Return the streams of these windows, as `Streams.of` does."""
        numbers = starts // self.windows.block
        distinct, first = np.unique(numbers, return_index=True)
        missing = first[~self._is_cached[distinct]]
        if len(missing):
            streams = np.asarray(self.streams.of(windows[missing], starts[missing]))
            self._cache[numbers[missing]] = streams[: len(missing)]
            self._is_cached[numbers[missing]] = True
        result = np.zeros(
            (self.streams.groups * self.streams.batch, *self.streams.shape), np.float32
        )
        result[: len(numbers)] = self._cache[numbers]
        return result


class CriticAdvisor:
    """A critic as the `lm.run.Advisor` of a run; with loss=ce, its loss is only reported."""

    def __init__(self, config: AvataRL, critic: Critic, windows: Windows) -> None:
        self.model, self.advises = critic.model, config.needs_critic
        self.constants = critic.model if self.advises else None
        update_bytes = 4 * config.windows * config.block * self.model.tokens.shape[1]
        calls = min(config.log_every, MAX_STREAM_BYTES // update_bytes)
        self.updates_per_call = max(1, calls)
        if self.advises:
            groups = self.updates_per_call * config.accumulate
            self.streams: Any = Streams(self.model, config.block, config.batch, groups)
            if config.cache_critic:
                self.streams = CachedStreams(self.streams, windows)

    def advise(self, windows: np.ndarray, starts: np.ndarray) -> dict[str, Any]:
        """Return the critic's streams for windows [K, accumulate, batch, block + 1].

        `starts` are the places in the text of the first windows; later windows are not read.
        """
        used = windows.reshape(-1, windows.shape[-1])[: len(starts)]
        streams = self.streams.of(used, starts)
        return {"stream": streams.reshape(*windows.shape[:-1], *streams.shape[1:])}

    def save(self, run_folder: Path) -> None:
        """Write a copy of the critic into its student's folder."""
        export_weights(run_folder / COPY, *gpt2_form(self.model))
        with writing(str(run_folder / checksums.NAME)):
            checksums.write(run_folder, COPY_FILES)
