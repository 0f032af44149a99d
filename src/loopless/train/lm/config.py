"""What a language-model run can be told: all of `text_config`, and nothing else.

Imports the standard library. Tests: `tests/train/test_lm_config.py`.
"""

from dataclasses import dataclass

from loopless.train.lm.text_config import TextConfig


@dataclass(frozen=True)
class LM(TextConfig):
    """A language model, trained by cross-entropy on any text; a critic for AvataRL, too.

    The defaults train a small GPT on the source of Python's standard library. A step is one update
    of the weights, on `batch` windows of `block` tokens (times `accumulate`).
    """
