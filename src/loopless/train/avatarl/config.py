"""The settings of an AvataRL run, and which of them contradict each other.

They are those of any run on text (`lm/config.py`), and those of the critic and of the loss.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal

from loopless.train.engine.options import RunOptions, range_problems
from loopless.train.lm.config import LM, TextOptions

# Settings that a critic that is trained first does not take over from its student.
_NOT_OF_STUDENT = {"steps", "seed", "run", "profile", "tensorboard"}
_MODEL_SETTINGS = {"size", "layers", "heads", "width"}


@dataclass(frozen=True)
class AvataRL(TextOptions, RunOptions):
    """A language model trained from random weights by rewards of reality and of a frozen critic.

    Without --critic, a critic is trained first, as a run of its own; the next run that needs the
    same critic finds it. `--loss soft` and `--loss ce` train the same student by cross-entropy to
    the same target and to the plain text, for a comparison at equal tokens.
    """

    TRACED: ClassVar = (
        *TextOptions.TRACED, "reality_weight", "critic_weight", "label_smoothing", "reward_scale",
        "reward_clamp", "entropy_coefficient",
    )  # fmt: skip

    critic: Path | None = None
    """The critic: a run of a language model, or a file of GPT-2 weights (.safetensors). The student
    uses its tokens, unless text or tokens are given. If left out, a critic is found or trained."""
    critic_checkpoint: str = "best"
    """Which checkpoint of the critic: best, latest, or a name."""
    critic_steps: int = 3_000
    """Updates of a critic that is trained first."""
    critic_size: Literal[
        "0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"
    ] | None = None  # fmt: skip
    """Size of a critic that is trained first; the student's if left out."""
    critic_seed: int = 1_000
    """Seed of a critic that is trained first: the same for all students, so that students of
    several seeds share one critic."""
    cache_critic: bool = False
    """Keep the critic's answer to each window in memory for later epochs; needs order=shuffled."""

    loss: Literal["avatarl", "soft", "distillation", "ce"] = "avatarl"
    """avatarl: the AvataRL loss. soft: cross-entropy to the rewards of the same variant.
    distillation: cross-entropy to the critic's distribution. ce: cross-entropy to the text, without
    a critic."""
    variant: Literal["fixed", "original", "subset", "full"] = "fixed"
    """fixed: the loss as it should be. The others: three versions of it as published."""
    top_k: int = 4
    """Actions that student and critic each propose at a position, beside the true token."""
    reality_weight: float = 0.7
    """Exponent of reality in the product of experts."""
    critic_weight: float = 0.3
    """Exponent of the critic in the product of experts."""
    confidence: bool = False
    """Weigh the critic at each position by its confidence, 1 − H/log n, and reality by the rest."""
    label_smoothing: float = 0.1
    """Share of reality that goes to tokens other than the true one."""
    reward_scale: float = 100.0
    """Rewards are multiplied by this; not used by fixed."""
    reward_clamp: float = 1.5
    """Larger rewards are brought down to this, all in proportion; not used by fixed."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy, which keeps the student exploring. In subset and full, the
    temperature is 1 plus this."""

    @property
    def needs_critic(self) -> bool:
        """Whether the loss uses a critic."""
        return self.loss != "ce"

    def critic_config(self) -> LM:
        """Return the config of the critic that is trained first if none is named."""
        shared = {field.name for field in fields(LM)} - _NOT_OF_STUDENT
        if self.critic_size is not None:
            shared -= _MODEL_SETTINGS
        settings = {name: getattr(self, name) for name in shared}
        if self.critic_size is not None:
            settings["size"] = self.critic_size
        return LM(**settings, steps=self.critic_steps, seed=self.critic_seed)

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        problems = super().problems() + self.text_problems()
        problems += range_problems(self, LEAST, positive=("reward_scale", "reward_clamp"))
        if (self.reality_weight, self.critic_weight) == (0, 0) and not self.confidence:
            problems.append(
                "reality_weight and critic_weight are both 0; set at least one of them above 0."
            )
        if not 0 <= self.label_smoothing < 1:
            problems.append(f"label_smoothing must be in [0, 1); received {self.label_smoothing}.")
        if self.cache_critic and self.order != "shuffled":
            problems.append(
                "cache_critic needs windows that come again, because the critic's answer to a "
                f"token depends on where its window begins. order is {self.order}; use --order "
                "shuffled."
            )
        if self.cache_critic and not self.needs_critic:
            problems.append("cache_critic is for losses with a critic; --loss ce has none.")
        return problems


LEAST = {
    "top_k": 1, "critic_steps": 1, "critic_seed": 0, "reality_weight": 0, "critic_weight": 0,
    "entropy_coefficient": 0,
}  # fmt: skip
