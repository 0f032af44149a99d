"""The settings of language-model runs, and which of them contradict each other.

`TextOptions` are those that `lm` and `avatarl` share. This file needs no JAX, so that `--help` and
a mistyped flag are quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from loopless.train.engine.options import RunOptions, range_problems

VOCABULARY = 512  # ids of a BPE tokenizer, unless another number is asked for


class DataSettings(NamedTuple):
    """The settings that decide which tokens there are."""

    text: Path | None
    tokenizer: str | None
    vocabulary: int | None
    validation_share: float
    tokens: Path | None
    validation_tokens: Path | None
    token_type: str | None
    tokenizer_file: Path | None


@dataclass(frozen=True)
class TextOptions:
    """The settings of every run on text. A step is one update of the weights."""

    TRACED: ClassVar = (
        "steps", "learning_rate", "learning_rate_end", "warmup", "weight_decay", "adam_beta_1",
        "adam_beta_2", "adam_epsilon", "max_gradient_norm",
    )  # fmt: skip

    text: Path | None = None
    """A text file, or a folder of them; Python's own standard library if left out."""
    tokenizer: Literal["byte", "char", "bpe"] | None = None
    """How text becomes tokens: bpe, trained on the spot, if left out."""
    vocabulary: int | None = None
    """Number of tokens, at most; 512 for bpe if left out. For token files: the number that they
    were made with."""
    validation_share: float = 0.1
    """Share of the text that is held out for validation."""
    tokens: Path | None = None
    """A flat file of uint16 or uint32 token ids, instead of text."""
    validation_tokens: Path | None = None
    """A token file to validate with; the last part of `tokens` if left out."""
    token_type: Literal["uint16", "uint32"] | None = None
    """Type of the ids in token files; the smallest that holds the vocabulary if left out."""
    tokenizer_file: Path | None = None
    """The tokenizer.json of ours that the token files were made with, to make samples readable."""
    order: Literal["shuffled", "random"] = "shuffled"
    """shuffled: all aligned windows of `block` tokens once per epoch. random: from anywhere."""

    size: Literal[
        "0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"
    ] = "0.2M"  # fmt: skip
    """The model's layers, heads and width by the name of a size."""
    layers: int | None = None
    """Number of layers, instead of the size's."""
    heads: int | None = None
    """Heads of the attention, instead of the size's."""
    width: int | None = None
    """Width, instead of the size's."""
    block: int = 64
    """Tokens that the model sees at once."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """Type of the factors in matrix products; weights and sums are float32."""
    recompute: Literal["auto", "on", "off"] = "auto"
    """Compute each layer again for the gradient: less memory, and faster on the CPU. auto: only on
    the CPU."""

    steps: int = 3_000
    """Updates in all."""
    seed: int = 0
    """Seed of the first weights and of the order of the windows."""
    batch: int = 8
    """Windows per gradient."""
    accumulate: int = 1
    """Gradients that are averaged for one update."""
    learning_rate: float = 4e-3
    """AdamW's step size, after the warm-up."""
    learning_rate_end: float = 0.0
    """AdamW's step size at the end of the run, reached by a cosine."""
    warmup: int = 100
    """Updates during which the step size rises in a line."""
    weight_decay: float = 0.01
    """AdamW's pull of matrices and embeddings towards 0."""
    adam_beta_1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta_2: float = 0.95
    """Decay of Adam's mean of squared gradients."""
    adam_epsilon: float = 1e-8
    """Added to the root of Adam's second moments."""
    max_gradient_norm: float = 1.0
    """Longer gradients are scaled down to this norm; 0: none are."""

    eval_every: int = 500
    """Updates between two validations; 0: none."""
    eval_windows: int = 512
    """Validation windows, spread over the held-out text and always the same."""
    log_every: int = 50
    """Updates between two rows of metrics, and per call of the compiled program."""
    plot_every: int = 500
    """Updates between two drawings of the plots; 0: only at the end."""
    checkpoint_every: int = 500
    """Updates between two checkpoints."""

    @property
    def windows(self) -> int:
        """Windows per update."""
        return self.batch * self.accumulate

    @property
    def data_settings(self) -> DataSettings:
        """The settings that decide which tokens there are."""
        return DataSettings(*(getattr(self, name) for name in DataSettings._fields))

    def text_problems(self) -> list[str]:
        """Return what is wrong with these settings, one sentence for each problem."""
        problems = range_problems(self, LEAST, positive=("learning_rate", "adam_epsilon"))
        problems += [
            f"{name} must be in [0, 1); received {value}."
            for name in ("adam_beta_1", "adam_beta_2")
            if not 0 <= (value := getattr(self, name)) < 1
        ]
        if not 0 < self.validation_share < 1:
            problems.append(
                f"validation_share must be in (0, 1); received {self.validation_share}."
            )
        return problems + (
            self._tokenizer_problems() if self.tokens is None else self._token_file_problems()
        )

    def _tokenizer_problems(self) -> list[str]:
        problems = [
            f"{name} is for token files; name one with --tokens."
            for name in ("validation_tokens", "token_type", "tokenizer_file")
            if getattr(self, name) is not None
        ]
        ids = self.vocabulary
        if self.tokenizer == "byte" and ids not in (None, 257):
            problems.append(
                f"vocabulary must be 257 for bytes and the end of a document; received {ids}."
            )
        if self.tokenizer in (None, "bpe") and ids is not None and ids < 257:
            problems.append(f"vocabulary must be at least 257 for bpe; received {ids}.")
        return problems

    def _token_file_problems(self) -> list[str]:
        problems = []
        if self.text is not None:
            problems.append("text and tokens are both given; leave one of them out.")
        if self.tokenizer is not None:
            problems.append(
                "tokenizer is for text. Tokens come with the tokenizer they were made with: name "
                "it with --tokenizer-file."
            )
        return problems


LEAST = {
    "vocabulary": 2, "layers": 1, "heads": 1, "width": 1, "block": 1, "batch": 1, "accumulate": 1,
    "learning_rate_end": 0, "warmup": 0, "weight_decay": 0, "max_gradient_norm": 0,
    "eval_every": 0, "eval_windows": 1,
}  # fmt: skip


@dataclass(frozen=True)
class LM(TextOptions, RunOptions):
    """A language model, trained by cross-entropy on any text; it can be a critic for AvataRL.

    The defaults train a small GPT on the source of Python's standard library. A step is one update
    of the weights, on `batch` windows of `block` tokens (times `accumulate`).
    """

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        return super().problems() + self.text_problems()
