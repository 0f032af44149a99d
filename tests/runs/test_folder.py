"""Run folders: made whole or not at all, used by one process, refused with the reason."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from loopless.files import atomic
from loopless.runs import failures, folder
from loopless.runs.failures import BadConfig, BadRun, Failure, RunInUse, WriteFailed
from loopless.runs.folder import RunFolder


@dataclass(frozen=True)
class Settings:
    env: str = "CartPole-v1"
    gamma: float = 0.99


def create(root, name=None, trainer="dqn", config=None):
    return RunFolder.create(root, name, trainer, config or Settings())


def tree(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


# Making one


def test_a_new_run_has_all_its_parts(tmp_path):
    with create(tmp_path / "runs") as run:
        assert run.path == tmp_path / "runs" / "dqn-CartPole-v1-0"
        parts = ["checkpoints", "config.toml", "lock", "metrics.jsonl", "plots", "run.json"]
        assert tree(run.path) == parts
        facts = json.loads((run.path / "run.json").read_text())
    assert (facts["format"], facts["trainer"]) == (1, "dqn")
    assert facts["packages"].keys() >= {"loopless", "jax", "numpy"}
    assert facts.keys() == {
        "format", "trainer", "created", "command", "python", "packages", "commit"
    }  # fmt: skip


def test_names_count_up_from_the_highest_number(tmp_path):
    names = []
    for _ in range(3):
        with create(tmp_path) as run:
            names.append(run.name)
    assert names == ["dqn-CartPole-v1-0", "dqn-CartPole-v1-1", "dqn-CartPole-v1-2"]
    atomic.remove(tmp_path / names[0])
    (tmp_path / "dqn-CartPole-v1-11").write_text("a file in the way")
    with create(tmp_path) as run:
        assert run.name == "dqn-CartPole-v1-12"


def test_an_environment_with_a_slash_makes_one_folder(tmp_path):
    with create(tmp_path, config=Settings(env="ALE/Pong-v5")) as run:
        assert run.path == tmp_path / "dqn-ALE-Pong-v5-0"


def test_two_that_take_the_same_number_at_once_get_two_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_next_number", lambda root, stem: 0)
    with create(tmp_path) as first, create(tmp_path) as second:
        assert (first.name, second.name) == ("dqn-CartPole-v1-0", "dqn-CartPole-v1-1")


def test_an_existing_run_is_not_overwritten(tmp_path):
    create(tmp_path, "mine").close()
    before = (tmp_path / "mine" / "run.json").read_bytes()
    with pytest.raises(BadConfig, match=r"Use `loopless resume .*mine` to continue it") as caught:
        create(tmp_path, "mine")
    assert caught.value.exit_code == 2
    assert (tmp_path / "mine" / "run.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["mine"]


def test_an_empty_folder_of_that_name_is_taken(tmp_path):
    (tmp_path / "mine").mkdir()
    with create(tmp_path, "mine") as run:
        assert run.config(Settings) == Settings()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "-x", "a\nb", "x" * 121])
def test_a_name_that_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(BadConfig, match="cannot be the name of a run"):
        create(tmp_path / "runs", name)
    assert not (tmp_path / "runs").exists()


def test_a_missing_parent_is_bad_usage(tmp_path):
    with pytest.raises(BadConfig, match=r"there is no folder .*none for the runs"):
        create(tmp_path / "none" / "runs")


@pytest.mark.parametrize("root", ["file", "file/runs"])
def test_a_file_in_place_of_the_folder_is_bad_usage(tmp_path, root):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfig, match="runs need a folder"):
        create(tmp_path / root)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.EROFS, "Read-only file system. Choose a folder on a disk that can be written to."),
        (errno.EACCES, "Permission denied. Choose a folder that you may write to."),
        (errno.ENOSPC, "No space left on device. Free some space"),
        (errno.EIO, "Input/output error."),
    ],
)
@pytest.mark.parametrize("function", ["mkdir", "write", "fsync", "rename"])
def test_a_disk_that_refuses_is_named_and_left_clean(
    tmp_path, monkeypatch, function, code, message
):
    def fails(*arguments, **options):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fails)
        with pytest.raises(WriteFailed, match="cannot write") as caught:
            create(tmp_path)
    assert message in str(caught.value)
    assert caught.value.exit_code == 74
    assert os.listdir(tmp_path) == []


def test_what_a_killed_creation_left_is_swept_away_and_a_living_one_is_not(tmp_path):
    for name in (".dead.staged", ".alive.staged"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    alive = folder.Lock(tmp_path / ".alive.staged" / "lock")
    create(tmp_path, "mine").close()
    assert sorted(os.listdir(tmp_path)) == [".alive.staged", "mine"]
    alive.release()


# Opening one


def test_a_run_opens_with_its_config_and_facts(tmp_path):
    config = Settings(gamma=0.1 + 0.2)
    with create(tmp_path, "mine", config=config) as made:
        found = RunFolder.open(tmp_path / "mine")  # reading needs no lock
        assert found.config(Settings) == config
        assert found.facts == made.facts
        assert (found.trainer, found.name) == ("dqn", "mine")


def test_the_header_of_the_config_says_how_to_use_it(tmp_path):
    with create(tmp_path) as run:
        assert run.config_file.read_text().startswith("# `loopless train dqn --config` this file")


def test_locking_a_run_tidies_up_after_a_process_that_died(tmp_path):
    create(tmp_path, "mine").close()
    checkpoints = tmp_path / "mine" / "checkpoints"
    (checkpoints / ".step_000000000001.staged").mkdir()
    (checkpoints / ".step_000000000002.replaced").mkdir()
    (tmp_path / "mine" / ".latest.staged").touch()
    RunFolder.open(tmp_path / "mine")
    assert len(os.listdir(checkpoints)) == 2
    RunFolder.open(tmp_path / "mine", lock=True).close()
    assert os.listdir(checkpoints) == ["step_000000000002"]
    assert not (tmp_path / "mine" / ".latest.staged").exists()


def write_facts(**facts):
    return lambda run: (run / "run.json").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "run.json").unlink(), r"mine is not a run: it has no run\.json\."),
        (lambda run: (run / "run.json").write_text(""), "is broken"),
        (lambda run: (run / "run.json").write_text("[1]"), "is broken"),
        (lambda run: (run / "run.json").write_text("[" * 100_000), "is broken"),
        (lambda run: (run / "run.json").write_bytes(b"\xff"), "is not text"),
        (lambda run: (run / "run.json").write_text(" " * 2_000_000), "is larger than"),
        (write_facts(trainer="dqn"), "is broken .*format"),
        (write_facts(format="1", trainer="dqn"), "is broken"),
        (write_facts(format=1, trainer=3), "is broken"),
        (write_facts(format=2, trainer="dqn"), r"newer loopless \(format 2; .* Upgrade loopless"),
    ],
)
def test_a_run_that_cannot_be_read_is_refused_with_the_reason(tmp_path, damage, message):
    create(tmp_path, "mine").close()
    damage(tmp_path / "mine")
    for lock in (False, True):
        with pytest.raises(BadRun, match=message) as caught:
            RunFolder.open(tmp_path / "mine", lock=lock)
        assert caught.value.exit_code == 2


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path):
    create(tmp_path, "mine").close()
    (tmp_path / "mine" / "run.json").unlink()
    os.mkfifo(tmp_path / "mine" / "run.json")
    with pytest.raises(BadRun, match="is neither a file nor a folder"):
        RunFolder.open(tmp_path / "mine")


def test_a_missing_config_is_said(tmp_path):
    with create(tmp_path, "mine") as run:
        run.config_file.unlink()
        with pytest.raises(BadRun, match=r"it has no config\.toml"):
            run.config(Settings)


def test_a_missing_run_comes_with_the_nearest_name(tmp_path):
    create(tmp_path, "first-try").close()
    with pytest.raises(BadRun, match=r"there is no run .*fist-try. Did you mean .*first-try\?"):
        RunFolder.open(tmp_path / "fist-try")
    with pytest.raises(BadRun, match=r"The newest are: first-try\."):
        RunFolder.open(tmp_path / "other")


# One process a run

TRAINER = """
import sys, time
from pathlib import Path
from loopless.runs.folder import RunFolder
run = RunFolder.open(Path(sys.argv[1]), lock=True)
print("locked", flush=True)
time.sleep(60)
"""


@pytest.fixture
def trainer(tmp_path):
    """A child that holds the lock of the run `mine`."""
    create(tmp_path, "mine").close()
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINER, tmp_path / "mine"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_second_process_is_told_who_trains(tmp_path, trainer):
    with pytest.raises(RunInUse, match=rf"in use by pid {trainer.pid} on host \S+\.") as caught:
        RunFolder.open(tmp_path / "mine", lock=True)
    assert caught.value.exit_code == 2
    RunFolder.open(tmp_path / "mine")  # a reader may look


def test_a_killed_process_holds_no_lock(tmp_path, trainer):
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    RunFolder.open(tmp_path / "mine", lock=True).close()


def test_a_new_run_is_locked_from_the_start_and_free_when_closed(tmp_path):
    with create(tmp_path, "mine"), pytest.raises(RunInUse, match=f"pid {os.getpid()} "):
        RunFolder.open(tmp_path / "mine", lock=True)
    RunFolder.open(tmp_path / "mine", lock=True).close()


def test_a_forked_worker_does_not_keep_the_lock(tmp_path):
    script = """
import os, sys, time
from pathlib import Path
from loopless.runs.folder import RunFolder
run = RunFolder.open(Path(sys.argv[1]), lock=True)
if os.fork() == 0:
    print("forked", flush=True)
time.sleep(60)
"""
    create(tmp_path, "mine").close()
    child = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "mine"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(RunInUse):
            RunFolder.open(tmp_path / "mine", lock=True)
        child.kill()
        child.wait()
        RunFolder.open(tmp_path / "mine", lock=True).close()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()


def test_a_lock_behind_a_link_is_refused(tmp_path):
    create(tmp_path, "mine").close()
    (tmp_path / "precious").write_text("content")
    (tmp_path / "mine" / "lock").unlink()
    (tmp_path / "mine" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(BadRun, match="lock is a link"):
        RunFolder.open(tmp_path / "mine", lock=True)
    assert (tmp_path / "precious").read_text() == "content"


# Exit codes


def test_every_failure_has_its_exit_code():
    kinds = [kind for kind in vars(failures).values() if isinstance(kind, type)]
    codes = {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, Failure)}
    assert codes == {
        "Failure": 2, "BadConfig": 2, "BadRun": 2, "RunInUse": 2,
        "WriteFailed": 74, "NonFinite": 70, "EnvFailed": 70, "Interrupted": 75,
    }  # fmt: skip
