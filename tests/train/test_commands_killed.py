"""Real processes that train: interrupted, killed, two on one folder; no run is lost."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from run_results import TINY, checkpoint_files, command, events, flags, rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("commands")]

# Long enough to be met in its midst: there are 40 checkpoints to be written.
LONG = replace(
    TINY, prioritized="exact", double=True, steps=16_000, checkpoint_every=400, log_every=400,
    eval_every=4_000, plot_every=0,
)  # fmt: skip
# Whoever was started in the background of a script ignores SIGINT; a terminal's child does not.
MAIN = (
    "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from loopless.cli import main\nsys.exit(main())"
)


@pytest.fixture(scope="module")
def start():
    """Starts `loopless` in a process of its own."""
    children = []

    def loopless(*words):
        child = subprocess.Popen(
            [sys.executable, "-c", MAIN, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a group of its own, as a terminal gives it
        )
        children.append(child)
        return child

    yield loopless
    for child in children:
        child.kill()
        child.communicate()


def finish(child, code):
    said, _ = child.communicate(timeout=120)
    assert child.returncode == code, said
    return said


def wait_for_checkpoints(path, child, count=2):
    """Until a process has written so many more than there are now."""

    def written():
        folder = path / "checkpoints"
        return set(os.listdir(folder)) if folder.exists() else set()

    before = written()
    while len(written() - before) < count:
        assert child.poll() is None, child.communicate()[0]
        time.sleep(0.005)


def test_interrupted_terminated_and_killed_it_ends_with_the_same_bytes(tmp_path, start):
    child = start("train", "dqn", *flags(LONG, runs=tmp_path, run="mine"))
    path = tmp_path / "mine"
    for number, code in ((signal.SIGINT, 75), (signal.SIGTERM, 75), (signal.SIGKILL, -9)):
        wait_for_checkpoints(path, child)
        os.killpg(child.pid, number)
        said = finish(child, code)
        assert (f"`loopless resume {path}` continues" in said) == (code == 75)
        assert "Traceback" not in said
        child = start("resume", path)
    finish(child, 0)
    assert command("train", "dqn", *flags(LONG, runs=tmp_path, run="whole")) == 0
    kinds = [kind for _, kind in events(path)]
    assert kinds == ["start", "interrupt", "resume", "interrupt", "resume", "resume", "end"]
    assert rows(path) == rows(tmp_path / "whole")
    last = "checkpoints/step_000000016000/"
    mine, theirs = (
        {name: data for name, data in checkpoint_files(run).items() if name.startswith(last)}
        for run in (path, tmp_path / "whole")
    )
    assert len(mine) == 3
    assert mine == theirs


def test_ctrl_c_reaches_a_hosted_run_with_workers_once_and_it_goes_on(tmp_path, start):
    config = replace(LONG, mode="hosted", vectorization="async", steps=4_000)
    child = start("train", "dqn", *flags(config, runs=tmp_path, run="mine"))
    wait_for_checkpoints(tmp_path / "mine", child)
    workers = children_of(child.pid)
    assert workers
    os.killpg(child.pid, signal.SIGINT)
    finish(child, 75)
    assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
    finish(start("resume", tmp_path / "mine"), 0)
    kinds = [kind for _, kind in events(tmp_path / "mine")]
    assert kinds == ["start", "interrupt", "resume", "end"]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def test_two_processes_do_not_train_one_run(copied, capsys):
    """The other one holds the lock, and is named."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom loopless.runs.folder import RunFolder\n"
        "run = RunFolder.open(Path(sys.argv[1]), lock=True)\nprint('held', flush=True)\ninput()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(copied)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert command("resume", copied) == 2
        assert f"is in use by pid {other.pid} on host" in capsys.readouterr().err
        assert command("play", copied, "--episodes", 1) == 0  # looking on is allowed
        other.communicate(b"\n")
    assert command("resume", copied) == 0
