"""What an AvataRL run can be told: all of `text_config`, the critic, and the loss.

Imports `ranges`, `lm_config`. Tests: `test_lm_config.py`, `test_avatarl_run.py` in `tests/train`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopless.train.engine import options
from loopless.train.lm.config import LM
from loopless.train.lm.text_config import TextConfig

# What a critic that is trained on the fly has of its student.
_OF_STUDENT = {
    "text",
    "tokenizer",
    "vocabulary",
    "validation_share",
    "tokens",
    "validation_tokens",
    "token_type",
    "tokenizer_file",
    "order",
    "block",
    "compute",
    "recompute",
    "batch",
    "accumulate",
    "learning_rate",
    "learning_rate_end",
    "warmup",
    "weight_decay",
    "adam_beta_1",
    "adam_beta_2",
    "adam_epsilon",
    "max_gradient_norm",
    "eval_every",
    "eval_windows",
    "runs",
    "log_every",
    "plot_every",
    "checkpoint_every",
    "on_nan",
}
_OF_ITS_SIZE = ("size", "layers", "heads", "width")  # fmt: skip


@dataclass(frozen=True)
class AvataRL(TextConfig):
    """A language model trained from random weights by rewards of reality and of a frozen critic.

    With no further argument a critic is trained first, as a run of its own; the next run that
    asks for the same critic finds it. `--loss soft` and `--loss ce` train the same student by
    cross-entropy to the same target, and to the plain text, for comparison at equal tokens.
    """

    critic: Path | None = None
    """The run of a language model, or GPT-2 weights (.safetensors), that judges. Its tokens are
    the student's, unless text or tokens are given. If left out, one is found or trained."""
    critic_checkpoint: str = "best"
    """Which of its checkpoints: best, latest, or the name of one."""
    critic_steps: int = 3_000
    """Updates of a critic that is trained first."""
    critic_size: Literal[
        "0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"
    ] | None = None  # fmt: skip
    """Size of a critic that is trained first; the student's if left out."""
    critic_seed: int = 1_000
    """Its seed: the same for all students, so that those of several seeds have one critic."""
    cache_critic: bool = False
    """Keep in memory what the critic made of each window, for later epochs; order=shuffled."""

    loss: Literal["avatarl", "soft", "distillation", "ce"] = "avatarl"
    """avatarl: the loss. soft: cross-entropy to the rewards of the same variant. distillation: to
    all of what the critic says. ce: to the text, without a critic."""
    variant: Literal["fixed", "original", "subset", "full"] = "fixed"
    """fixed: the loss as it should be. The others: as it was published, in three versions."""
    top_k: int = 4
    """Actions that student and critic each propose at a position, beside the true token."""
    reality_weight: float = 0.7
    """Exponent of reality in the product of experts."""
    critic_weight: float = 0.3
    """Exponent of the critic."""
    confidence: bool = False
    """The critic's weight is its confidence at each position, 1 − H/log n, and reality has the
    rest."""
    label_smoothing: float = 0.1
    """Share of reality that goes to tokens other than the true one."""
    reward_scale: float = 100.0
    """Rewards are multiplied by this; fixed does not use it."""
    reward_clamp: float = 1.5
    """Larger rewards are brought down to this, all in proportion; fixed does not use it."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy, which keeps the student open; temperature less 1 in subset and
    full."""

    @property
    def needs_critic(self) -> bool:
        """Whether the loss is made with a critic."""
        return self.loss != "ce"

    def critic_config(self) -> LM:
        """The language model that is trained first, if no critic is named."""
        own = {name: getattr(self, name) for name in _OF_STUDENT}
        if self.critic_size is None:
            own |= {name: getattr(self, name) for name in _OF_ITS_SIZE}
        else:
            own["size"] = self.critic_size
        return LM(**own, steps=self.critic_steps, seed=self.critic_seed)

    def problems(self) -> list[str]:
        """What makes no sense, in words."""
        wrong = super().problems()
        wrong += options.range_problems(self, LEAST, positive=("reward_scale", "reward_clamp"))
        if (self.reality_weight, self.critic_weight) == (0, 0) and not self.confidence:
            wrong.append("reality_weight and critic_weight are both 0; give one of them a weight.")
        if not 0 <= self.label_smoothing < 1:
            wrong.append(f"label_smoothing is {self.label_smoothing}; it lies in [0, 1).")
        if self.cache_critic and self.order != "shuffled":
            wrong.append(
                "cache_critic needs windows that come again: what a critic says of a token depends "
                f"on where its window begins. order is {self.order}; use --order shuffled."
            )
        if self.cache_critic and not self.needs_critic:
            wrong.append("cache_critic is for losses with a critic; --loss ce has none.")
        return wrong


LEAST = {
    "top_k": 1, "critic_steps": 1, "critic_seed": 0, "reality_weight": 0, "critic_weight": 0,
    "entropy_coefficient": 0,
}  # fmt: skip
