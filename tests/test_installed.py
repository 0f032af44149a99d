"""An installed copy works without the repository around it.

The copy is the folder that the wheel is made of (`packages` in pyproject.toml), in an empty place.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import loopless

pytestmark = pytest.mark.slow

SUITE = '''
"""A suite of a user's own."""
from loopless.bench.result import Measurement

TITLES = {"sums": "Sums"}


def run(options, result, say):
    row = Measurement("sums", "n=3", "mine", "numpy", "ours", value=1e-6)
    result.measurements.append(row)
'''
# Config classes read every preset of the copy, and the page finds its style sheet.
READS = """
from importlib.resources import files
from pathlib import Path
import loopless
from loopless.runs.config import from_toml
from loopless.train.registry import config_class

home = Path(loopless.__file__).parent
presets = sorted((home / "train/presets").glob("*/*.toml"))
for preset in presets:
    name = "lm" if preset.stem == "critic" else preset.parent.name
    from_toml(config_class(name), preset.read_text(), str(preset))
assert files("loopless.report").joinpath("page.css").is_file()
print(home, len(presets))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return a function that runs Python in an empty folder, where only the copy is loopless."""
    place = tmp_path_factory.mktemp("installed")
    source = Path(loopless.__file__).parent
    shutil.copytree(source, place / "site/loopless", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "work").mkdir()
    (place / "own_suite.py").write_text(SUITE)
    environment = os.environ | {"PYTHONPATH": str(place / "site")}

    def run(*words):
        return subprocess.run(
            [sys.executable, *words], cwd=place / "work", env=environment,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    run.place = place
    return run


def test_its_presets_and_its_style_sheet_are_in_it(python):
    done = python("-c", READS)
    assert done.stdout.split()[0] == str(python.place / "site/loopless"), done.stderr
    presets = list(Path(loopless.__file__).parent.glob("train/presets/*/*.toml"))
    assert int(done.stdout.split()[1]) == len(presets) > 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench"], "an installed loopless has no suites of its own"),
        (["bench", "returns"], "loopless bench path/to/suite.py"),
        (["demo", "returns"], "The races (returns, q_learning) are left out"),
    ],
)
def test_what_needs_the_repository_says_so(python, words, message):
    done = python("-m", "loopless.cli", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_suite_of_ones_own_is_measured_and_reported(python):
    done = python("-m", "loopless.cli", "bench", "../own_suite.py")
    assert done.returncode == 0, done.stderr
    assert "1.00 µs" in done.stdout
    done = python("-m", "loopless.cli", "report")
    assert done.returncode == 0, done.stderr
    assert "own_suite" in (python.place / "work/report.html").read_text()
