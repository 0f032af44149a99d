"""A run of AvataRL: that of a language model, with a critic who is asked before each chunk.

Imports `avatarl`, `avatarl_critic` and `lm_run`. Tests: `tests/train/test_avatarl_run.py`.
"""

from pathlib import Path
from typing import Any

from loopless.runs.progress.clock import Clock
from loopless.train.avatarl import critic as avatarl_critic
from loopless.train.avatarl.algorithm import KeptStreams, Streams, objective_of
from loopless.train.avatarl.config import AvataRL
from loopless.train.avatarl.critic import Critic
from loopless.train.lm.run import TextRun
from loopless.train.lm.text_data import Material

MOST_BYTES = 1 << 28  # of streams in one call


class StudentRun(TextRun):
    """A student, and its critic; None for a student of plain cross-entropy."""

    def __init__(
        self, config: AvataRL, material: Material, critic: Critic | None, folder: Path | None = None
    ) -> None:
        self.critic = critic
        model = critic.model if critic is not None else None
        asked = model if config.needs_critic else None
        super().__init__(config, material, None, objective_of(config), fixed=asked)
        self.streams: Streams | None = None
        if asked is not None:
            each = 4 * config.windows * config.block * asked.tokens.shape[1]
            self.per_call = max(1, min(self.per_call, MOST_BYTES // each))
            kind = KeptStreams if config.cache_critic else Streams
            groups = self.per_call * config.accumulate
            self.streams = kind(asked, material.windows, config.batch, groups)
        if folder is not None:
            self._baselines = self._compared(folder)

    def settle(self, folder: Path) -> None:
        super().settle(folder)
        if self.critic is not None:
            avatarl_critic.keep(self.critic, folder)

    def _compared(self, folder: Path | None) -> dict[str, Any]:
        found = super()._compared(folder)
        if self.critic is None:
            return found
        loss = float(self._validate(self.critic.model, *self._groups))
        return found | self.material.losses("critic", loss)

    def rows(self, first: int, count: int, clock: Clock) -> dict[str, Any]:
        rows = super().rows(first, count, clock)
        if self.streams is None:
            return rows
        with clock("critic"):
            config, shape = self.config, rows["windows"].shape
            starts = self.material.windows.starts(first, config.windows, count).reshape(-1)
            windows = rows["windows"].reshape(-1, shape[-1])[: len(starts)]
            streams = self.streams.of(windows, starts)
            return rows | {"stream": streams.reshape(*shape[:-1], *streams.shape[1:])}
