"""Settings that are known to work, one TOML file each: `loopless train dqn --preset lunarlander`.

The first comment of a file says what it trains. A comment "Reaches …" says what came of it, as
measured, and in how long.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loopless.refusals import did_you_mean
from loopless.runs.failures import BadConfig

FOLDER = Path(__file__).parent
CRITIC = "critic"  # in the folder of avatarl, but a run of lm


class Preset(NamedTuple):
    """One preset: the trainer that it is for, its name, its file, and its comments."""

    trainer: str
    name: str
    file: Path

    @property
    def _comments(self) -> str:
        lines = self.file.read_text(encoding="utf-8").splitlines()
        return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))

    @property
    def text(self) -> str:
        """Return what it trains."""
        return self._comments.partition(" Reaches ")[0]

    @property
    def reaches(self) -> str:
        """Return what came of it, as measured; "" if nobody has measured it."""
        return self._comments.partition(" Reaches ")[2]


def presets() -> Iterator[Preset]:
    """Yield all presets, sorted by trainer and name."""
    for file in sorted(FOLDER.glob("*/*.toml")):
        trainer = "lm" if file.stem == CRITIC else file.parent.name
        yield Preset(trainer, file.stem, file)


def find(trainer: str, name: str) -> Path:
    """Return the file of a preset; its name may be cut short where that is clear."""
    files = {preset.name: preset.file for preset in presets() if preset.trainer == trainer}
    longer = [full for full in files if full.startswith(name)]
    if name in files or len(longer) == 1:
        return files[name if name in files else longer[0]]
    heads = {full.partition("_")[0] for full in files}  # the names, cut short
    hint = did_you_mean(name, longer or {*files, *heads}) or f" There are: {', '.join(files)}."
    raise BadConfig([f"no preset of {trainer} is called {name!r}.{hint} See `loopless presets`."])


def table() -> str:
    """Return all presets as text: how each is used, what it trains, and what it reaches."""
    lines = []
    for preset in presets():
        lines.append(f"loopless train {preset.trainer} --preset {preset.name}")
        reaches = preset.reaches and f"Reaches {preset.reaches}"
        lines += [f"    {preset.text}", f"    {reaches or 'What it reaches is not measured.'}"]
    return "\n".join(lines)
