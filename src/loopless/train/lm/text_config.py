"""What runs on text can be told, `lm` and `avatarl` alike: the data, the model, the optimiser.

This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from loopless.train.engine import options

VOCABULARY = 512  # of a BPE tokenizer, if none is asked for


class Prepared(NamedTuple):
    """All that decides which tokens there are."""

    text: Path | None
    tokenizer: str | None
    vocabulary: int | None
    validation_share: float
    tokens: Path | None
    validation_tokens: Path | None
    token_type: str | None
    tokenizer_file: Path | None


@dataclass(frozen=True)
class TextConfig(options.RunOptions):
    """Fields and checks that both trainers on text have. A step is one update of the weights."""

    text: Path | None = None
    """A text file, or a folder of them; Python's own standard library if left out."""
    tokenizer: Literal["byte", "char", "bpe"] | None = None
    """How text becomes tokens; bpe if left out, trained on the spot."""
    vocabulary: int | None = None
    """Tokens that there are, at most; 512 for bpe if left out. For files of tokens: what they were
    made with."""
    validation_share: float = 0.1
    """Share of the text that is held out."""
    tokens: Path | None = None
    """A flat file of uint16 or uint32 token ids, in place of text."""
    validation_tokens: Path | None = None
    """Such a file to validate with; the last of `tokens` if left out."""
    token_type: Literal["uint16", "uint32"] | None = None
    """How large their ids are; the smallest that holds the vocabulary if left out."""
    tokenizer_file: Path | None = None
    """The tokenizer.json of ours that they were made with, so that samples can be read."""
    order: Literal["shuffled", "random"] = "shuffled"
    """shuffled: all windows of `block` tokens once an epoch, aligned. random: from anywhere."""

    size: Literal[
        "0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"
    ] = "0.2M"  # fmt: skip
    """The model: layers, heads and width by the name of a size."""
    layers: int | None = None
    """Layers, in place of the size's."""
    heads: int | None = None
    """Heads of the attention, in place of the size's."""
    width: int | None = None
    """Width, in place of the size's."""
    block: int = 64
    """Tokens that the model sees at once."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """Type of the factors in matrix products; weights and sums are float32."""
    recompute: Literal["auto", "on", "off"] = "auto"
    """Compute each layer anew in the gradient: less memory, and on the CPU faster. auto: there."""

    steps: int = 3_000
    """Updates in all."""
    batch: int = 8
    """Windows of a gradient."""
    accumulate: int = 1
    """Gradients that are averaged for an update."""
    learning_rate: float = 4e-3
    """AdamW's step size, after the warm-up."""
    learning_rate_end: float = 0.0
    """Step size at the end of the run, reached by a cosine."""
    warmup: int = 100
    """Updates in which the step size rises in a line."""
    weight_decay: float = 0.01
    """AdamW's pull of matrices and embeddings towards 0."""
    adam_beta_1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta_2: float = 0.95
    """Decay of Adam's mean of their squares."""
    adam_epsilon: float = 1e-8
    """Added to the root of Adam's second moments."""
    max_gradient_norm: float = 1.0
    """Longer gradients are shortened to this norm; 0: none are."""

    eval_every: int = 500
    """Updates between two validations; 0: none."""
    eval_windows: int = 512
    """Windows of the validation set, spread over what is held out: always the same ones."""
    log_every: int = 50
    """Updates between two rows of metrics; so many are one call of the compiled program."""
    plot_every: int = 500
    """Updates between two drawings of the plots; 0: only at the end."""
    checkpoint_every: int = 500
    """Updates between two checkpoints."""

    @property
    def seeds(self) -> int:
        """A run on text is one model."""
        return 1

    @property
    def windows(self) -> int:
        """Windows of an update."""
        return self.batch * self.accumulate

    @property
    def prepared(self) -> Prepared:
        """The settings of the data alone."""
        return Prepared(*(getattr(self, name) for name in Prepared._fields))

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        wrong = super().problems()
        wrong += options.range_problems(self, LEAST, positive=("learning_rate", "adam_epsilon"))
        wrong += [
            f"{name} is {value}; it lies in [0, 1)."
            for name in ("adam_beta_1", "adam_beta_2")
            if not 0 <= (value := getattr(self, name)) < 1
        ]
        if not 0 < self.validation_share < 1:
            wrong.append(f"validation_share is {self.validation_share}; it lies in (0, 1).")
        wrong += self._data_problems()
        return wrong

    def _data_problems(self) -> list[str]:
        wrong = []
        if self.tokens is None:
            wrong += [
                f"{name} is for files of tokens; name one with --tokens."
                for name in ("validation_tokens", "token_type", "tokenizer_file")
                if getattr(self, name) is not None
            ]
        else:
            if self.text is not None:
                wrong.append("text and tokens are both given; train on one of them.")
            if self.tokenizer is not None:
                wrong.append(
                    "tokenizer is for text; tokens come with the one they were made with: "
                    "--tokenizer-file names it."
                )
        if self.tokens is None and self.tokenizer == "byte" and self.vocabulary not in (None, 257):
            wrong.append(f"vocabulary is {self.vocabulary}; bytes are 257 tokens with the end.")
        if (
            self.tokens is None
            and self.tokenizer in (None, "bpe")
            and (self.vocabulary or 257) < 257
        ):
            wrong.append(f"vocabulary is {self.vocabulary}; for bpe it is from 257 up.")
        return wrong


LEAST = {
    "vocabulary": 2, "layers": 1, "heads": 1, "width": 1, "block": 1,
    "batch": 1, "accumulate": 1, "learning_rate_end": 0, "warmup": 0, "weight_decay": 0,
    "max_gradient_norm": 0, "eval_every": 0, "eval_windows": 1,
}  # fmt: skip
