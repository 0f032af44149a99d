"""Language models as the commands see them: make a run, go on with one, export its model.

Imports the rest of `lm`. Tests: `tests/train/test_lm_runs.py`, `tests/train/test_lm_commands.py`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopless.nets.gpt.weights import gpt2_form
from loopless.train.lm import text_data
from loopless.train.lm.algorithm import model_of
from loopless.train.lm.config import LM
from loopless.train.lm.run import TextRun
from loopless.train.lm.text_config import TextConfig
from loopless.train.lm.text_data import Material

USE = (
    "A model of GPT-2's form, by GPT-2's names. This file as config.json and the arrays as "
    "model.safetensors in one folder are what other tools read. Its tokens are those of "
    "data/tokenizer.json in the run's folder."
)


def make(config: LM) -> TextRun:
    """The run that `config` describes."""
    return TextRun(config, Material.of(config, text_data.read(config)))


def reopen(config: LM, folder: Path) -> TextRun:
    """The run in `folder`, which keeps its tokens."""
    return TextRun(config, Material.of(config, text_data.reopen(config, folder)), folder)


def export(config: TextConfig, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict]:
    """The arrays of a model by GPT-2's names, and a card that says how to use them."""
    arrays, card = gpt2_form(model_of(config, weights))
    return arrays, card | {"use": USE}
