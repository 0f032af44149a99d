"""Runs that an older loopless made are resumed, plotted and exported by this one.

`made_before/` holds one small run of every trainer, made at commit 32316e0, before the modules
moved. The expected numbers are those that the same commit gave when it resumed them. All chunks
are compiled, so equal programs give equal bytes on one machine; other processors round
differently, which a hundred updates amplify to less than a hundredth.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopless.runs import metrics

pytestmark = pytest.mark.slow

MADE_BEFORE = Path(__file__).parent / "made_before"
# In a process of their own with the settings that users have: these tests set JAX to 64 bits, and
# XLA to little optimization. `plot` draws, `resume` does not. A run that fails leaves no mark, and
# the next one has its turn.
COMMANDS = """
import sys, traceback
from pathlib import Path
from unittest import mock
from loopless import cli
from loopless.runs import session

for run in sys.argv[1:]:
    try:
        with mock.patch.object(session, "Renderer", mock.MagicMock()):
            assert cli.main(["resume", run, "--steps", "600"]) == 0
        assert cli.main(["plot", run]) == 0
        assert cli.main(["export", run, "--output", f"{run}/policy.safetensors"]) == 0
        Path(run, "done").touch()
    except Exception:
        traceback.print_exc()
"""
LAST_ROW = {
    "dqn": {"episodes": 27, "updates": 50, "loss": 1.2489768, "q_mean": -0.2031794},
    "ppo": {"episodes": 28, "updates": 96, "loss": 11.9773607, "entropy": 0.6918404},
    "allo": {"updates": 600, "graph_loss": 0.0604361, "similarity_mean": 0.7402898},
    "lm": {"updates": 600, "loss": 0.1176951, "epoch": 15.8940397},
    "avatarl": {"updates": 600, "loss": 0.1144189, "kl": 0.1174742},
}


@pytest.fixture(scope="module")
def all_resumed(tmp_path_factory):
    """Copies of the runs made before, trained 200 steps further, drawn and exported."""
    folder = tmp_path_factory.mktemp("made_before")
    shutil.copytree(MADE_BEFORE, folder, dirs_exist_ok=True)
    words = [sys.executable, "-c", COMMANDS, *(folder / name for name in LAST_ROW)]
    env = os.environ | {"JAX_ENABLE_X64": "0", "XLA_FLAGS": ""}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    return folder, done.stderr


@pytest.fixture(params=LAST_ROW)
def resumed(request, all_resumed):
    folder, said = all_resumed
    assert (folder / request.param / "done").exists(), said
    return folder / request.param


def test_it_goes_on_as_it_would_have_gone_on_before(resumed):
    rows = metrics.read(resumed / "metrics.jsonl")
    last = [row for row in rows if row["kind"] == "train"][-1]
    assert last["step"] == 600
    expected = LAST_ROW[resumed.name]
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-2)


def test_it_is_drawn(resumed):
    assert len(list((resumed / "plots").glob("*.png"))) >= 8


def test_its_policy_is_exported(resumed):
    assert (resumed / "policy.safetensors").stat().st_size > 500
    assert (resumed / "policy.json").is_file()
