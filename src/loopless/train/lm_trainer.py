"""Language models as the commands see them: make a run, go on with one, export its model.

Imports the rest of `lm`. Tests: `tests/train/test_lm_runs.py`, `tests/train/test_lm_commands.py`.
"""

from pathlib import Path

from loopless.train import text_data
from loopless.train.lm_config import LM
from loopless.train.lm_run import TextRun
from loopless.train.text_data import Material


def make(config: LM) -> TextRun:
    """The run that `config` describes."""
    return TextRun(config, Material.of(config, text_data.read(config)))


def reopen(config: LM, folder: Path) -> TextRun:
    """The run in `folder`, which keeps its tokens."""
    return TextRun(config, Material.of(config, text_data.reopen(config, folder)), folder)
