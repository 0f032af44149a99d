"""Runs that somebody sent: nothing outside their folder is touched, nothing in them believed.

Every test damages a copy of one of the small runs in `tests/runs/made_before`; nothing is trained.
"""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from run_results import command

from loopless.files import plain
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import BadRun, RunInUse, WriteFailed
from loopless.runs.folder import RunFolder
from loopless.runs.glossary import METRICS
from loopless.runs.metrics import MetricsLog
from loopless.runs.pictures import look, plots, snapshots
from loopless.runs.pictures.renderer import Renderer

pytestmark = pytest.mark.usefixtures("commands")

MADE_BEFORE = Path(__file__).parents[1] / "runs" / "made_before"
NEWEST, OLDER = "step_000000000400", "step_000000000200"
ESCAPE = "\x1b]0;x\x07"


@pytest.fixture
def sent(tmp_path):
    """A copy of a run, by trainer."""
    return lambda trainer="dqn": shutil.copytree(MADE_BEFORE / trainer, tmp_path / "sent")


@pytest.fixture
def mine(tmp_path):
    """A folder with all that a run would delete, cut, empty or overwrite, if it could."""
    folder = tmp_path / "mine"
    for name in ("step_000000000001", NEWEST, ".x.staged", "seed_0"):
        (folder / name).mkdir(parents=True)
        (folder / name / "state.safetensors").write_text("mine")
    for name in ("999999999999.npz", "return.png", "baselines.json", "policy.json", "notes.txt"):
        (folder / name).write_text("mine, and the last line has no end")
    return folder


def content(folder):
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def replace(path, make):
    """Put something else in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    make(path)


def run(*words):
    """The exit code of a command, and that it is a documented one."""
    code = command(*words)
    assert code in (0, 1, 2, 74)
    return code


# Links


LINKS = {
    "snapshots": "", "checkpoints": "", f"checkpoints/{OLDER}": "step_000000000001",
    "metrics.jsonl": "notes.txt", "renderer.log": "notes.txt", "plots": "", "data": "", "crash": "",
    "lock": "notes.txt", "latest": "notes.txt", "best": "notes.txt", "tensorboard": "",
    ".snapshots.replaced": "", "config.toml": "notes.txt", "run.json": "notes.txt",
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("words", ["resume", "plot", "export", "report"])
def test_a_link_in_a_run_is_refused_before_anything_is_touched(sent, mine, words, name, capsys):
    path, before = sent(), content(mine)
    replace(path / name, lambda place: place.symlink_to(mine / LINKS[name]))
    inside = sorted(path.rglob("*"))
    options = ["--out", mine.parent / "page.html"] if words == "report" else []
    assert run(words, path, *options) == 2
    assert f"{name} is a link" in capsys.readouterr().err
    assert content(mine) == before
    assert sorted(path.rglob("*")) == inside


def test_a_run_whose_own_folder_is_a_link_is_opened(sent, tmp_path):
    (tmp_path / "link").symlink_to(sent())
    with RunFolder.open(tmp_path / "link", lock=True) as opened:
        assert opened.name == "sent"


@pytest.mark.parametrize("name", ["metrics.jsonl", "lock"])
def test_a_file_with_another_name_is_not_written_to(sent, mine, name, capsys):
    path, before = sent(), content(mine)
    replace(path / name, lambda place: place.hardlink_to(mine / "notes.txt"))
    if name == "lock":
        assert run("resume", path) == 2
        assert "hard link" in capsys.readouterr().err
    else:
        with pytest.raises(BadRun, match="hard link"):
            MetricsLog(path / name)
    assert content(mine) == before


# The same where a file is opened: a link may come after a run was checked.


def test_no_writer_follows_a_link(mine, tmp_path, monkeypatch):
    def refuse(*_, **options):
        raise OSError("no process is needed here")

    before, path = content(mine), tmp_path / "run"
    path.mkdir()
    for name in ("snapshots", "plots", "checkpoints"):
        (path / name).symlink_to(mine)
    for name in ("metrics.jsonl", "renderer.log", "lock"):
        (path / name).symlink_to(mine / "notes.txt")
    with pytest.raises(BadRun, match=r"metrics\.jsonl"):
        MetricsLog(path / "metrics.jsonl")
    with pytest.raises(WriteFailed, match="snapshots"):
        snapshots.save(path, {"step": 5})
    snapshots.trim_after(path, 0)
    with pytest.raises(WriteFailed, match="step_000000000007"):
        Checkpoints(path).save(7, {"weights/w": np.zeros(1)}, {})
    with pytest.raises(NotADirectoryError, match="link or a file"):
        plain.make_folder(path / "plots")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    Renderer(path, note=lambda text: None).close()
    assert content(mine) == before
    assert not (path / "renderer.log").is_symlink()


def test_rotation_leaves_the_state_behind_a_linked_checkpoint(mine, tmp_path):
    checkpoints = Checkpoints(tmp_path / "run", keep=1)
    checkpoints.save(3, {"weights/w": np.zeros(1), "x": np.zeros(1)}, {})
    (checkpoints.folder / "step_000000000001").symlink_to(mine / "step_000000000001")
    checkpoints.save(4, {"weights/w": np.zeros(1), "x": np.zeros(1)}, {})
    assert (mine / "step_000000000001" / "state.safetensors").read_text() == "mine"


# Folders, pipes and garbage where files belong


FILES, FOLDERS = ("best", "latest", "metrics.jsonl", "lock"), ("checkpoints", "plots")
IN_THE_WAY = [
    *((name, os.mkfifo, "neither a file nor a folder") for name in (*FILES, *FOLDERS)),
    *((name, Path.mkdir, "is a folder, but must be a file") for name in FILES),
    *((name, Path.touch, "is a file, but must be a folder") for name in FOLDERS),
    (f"checkpoints/{NEWEST}/manifest.json", os.mkfifo, "neither a file nor a folder"),
    ("snapshots", os.mkfifo, "neither a file nor a folder"),
]


@pytest.mark.parametrize(("name", "make", "message"), IN_THE_WAY)
@pytest.mark.parametrize("words", ["plot", "export", "report", "resume"])
def test_what_is_in_the_way_gives_one_sentence(sent, tmp_path, words, name, make, message, capsys):
    path = sent()
    replace(path / name, make)
    options = ["--out", tmp_path / "page.html"] if words == "report" else []
    assert run(words, path, *options) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", ["best", "checkpoints", "metrics.jsonl", "config.toml"])
def test_what_may_not_be_read_gives_one_sentence(sent, name, monkeypatch, capsys):
    path = sent()

    def forbid(function):
        def call(place, *arguments, **options):
            if str(place) == str(path / name):
                raise PermissionError(errno.EACCES, "Permission denied", str(place))
            return function(place, *arguments, **options)

        return call

    for function in ("open", "scandir", "listdir"):
        monkeypatch.setattr(os, function, forbid(getattr(os, function)))
    assert run("export" if name != "metrics.jsonl" else "plot", path) == 2
    said = capsys.readouterr().err
    assert f"{name}" in said
    assert "Permission denied" in said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_plot_that_cannot_be_written_is_a_failed_write(sent, code, monkeypatch, capsys):
    def fails(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(look, "write", fails)
    assert run("plot", sent()) == 74
    assert f"{os.strerror(code)}." in capsys.readouterr().err


# Logs


def a_row(**values):
    return {"step": 400, "time": 2.0, "kind": "train", **values}


def an_evaluation(**values):
    return a_row(**values) | {"kind": "eval"}


ROWS = {
    "steps beyond int64": [a_row(step=2**63), a_row(step=-(2**63) - 1)],
    "a step that is true": [a_row(step=True)],
    "a time of 400 digits": [a_row(time=10**400, loss=1.0)],
    "numbers of 400 digits": [a_row(loss=10**400, episodes=10**400)],
    "returns at the end of float64": [
        a_row(step=s, time=t, return_mean=x, loss=x)
        for s, t, x in ((1, 1e308, 1e308), (2, -1e308, -1e308), (3, 1.0, 1e308), (4, 2.0, -1e308))
    ],
    "lists where numbers belong": [
        an_evaluation(eval_return=[1.0, 2.0], eval_return_std=1.0),
        an_evaluation(eval_return=1.0, eval_return_std=[1.0, 2.0]),
        a_row(loss=[[1.0], [2.0]], eigenvalue=1.0, similarity=[1.0], dual=[[1.0], [2.0, 3.0]]),
        a_row(loss={"a": 1}, return_mean="1", time_env=[], kept=[None]),
    ],
    "one row with very many seeds": [a_row(loss=[0.0] * 100_000)] + [a_row(loss=1.0)] * 5_000,
    "a line that is too long": [{"x": "y" * (5 << 20)}],
    "no objects": [[], 3, None, "x", {}],
}


def append(path, rows):
    with (path / "metrics.jsonl").open("a") as log:
        log.write("".join(f"{json.dumps(row)}\n" for row in rows))
        log.write('{"step": 401, "time": 3, "kind": "train", "loss": 0.5, "return_mean": 7.0}\n')


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_log_of_nonsense_gives_curves_without_it(sent, rows):
    path = sent()
    append(path, rows)
    read = plots.Run.read(path)
    assert read.train["step"][-1] == 401
    for metric in METRICS:
        if (curve := plots.curve_of(read, metric)) is not None:
            assert np.isfinite(np.diff(curve.line)).all()
            assert np.isfinite(np.diff(curve.steps)).all()


@pytest.mark.slow
def test_a_log_of_nonsense_is_drawn_without_it(sent, tmp_path):
    path = sent("allo")
    append(path, [row for rows in ROWS.values() for row in rows])
    assert run("plot", path, "--output", tmp_path / "all.png") in (0, 2)  # it may share no metric
    assert len(list((path / "plots").iterdir())) > 10
    assert run("report", path, "--out", tmp_path / "page.html") == 1


# Settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"steps = {'9' * 5_000}\n", "is not TOML"),
        (f"[{'.'.join('a' * 20_000)}]\n", "nested more than 16 deep"),
        (f"{'.'.join('a' * 50_000)} = 1\n", "nested more than 16 deep"),
        (" . ".join(["a", *['"x"'] * 50_000]) + " = 1\n", "nested more than 16 deep"),
        (f"a = {'[' * 20_000}{']' * 20_000}\n", "nested more than 16 deep"),
        (f"{'a = {' * 20_000}{'}' * 20_000}\n", "nested more than 16 deep"),
        ("".join(f"x{i} = 1\n" for i in range(20_000)), "19,980 more such problems"),
        ("a = [\n" + "1,\n" * 20_000 + "]\n", 'unknown key "a"'),
        (f'"{"k" * 100_000}" = 1\n', "unknown key"),
        (f'a = """{"." * 50}"""\nb = "{"a." * 50}"\n# {"[" * 50}\n', 'unknown key "a"'),
    ],
    ids=["digits", "header", "dots", "quoted", "lists", "tables", "keys", "lines", "long", "text"],
)
def test_a_hostile_config_is_refused_at_once(text, words, tmp_path, capsys):
    (tmp_path / "hostile.toml").write_text(text)
    assert run("train", "dqn", "--config", tmp_path / "hostile.toml", "--runs", tmp_path) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said) < 10_000


@pytest.mark.parametrize(
    "text", ["a.b.c = 1\n", f"x = [{'0.1, ' * 1_000}]\n", "a = 1.5\nb.c = 2\n"]
)
def test_what_is_not_deep_is_parsed(text):
    from loopless.runs.config.toml import parse

    assert parse(text)


def forge(path, change):
    """Change the manifest of a checkpoint, and give it the right checksum."""
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("settings", [[], None, 3, "x"])
@pytest.mark.parametrize("words", ["export", "play"])
def test_a_manifest_whose_settings_are_no_table_is_refused(sent, settings, words, capsys):
    path = sent()
    for name in (OLDER, NEWEST):
        forge(
            path / "checkpoints" / name / "manifest.json",
            lambda content: content["numbers"].update(config=settings),
        )
    assert run(words, path) == 2
    assert "must be a table" in capsys.readouterr().err


CHANGES = {
    'activation = "relu"': ('activation = "tanh"', "activation: relu → tanh"),
    "hidden = [": ("hidden = [\n    3,", "hidden: "),
}


@pytest.mark.parametrize("line", CHANGES)
@pytest.mark.parametrize("words", ["export", "play"])
def test_weights_are_not_read_with_other_settings(sent, line, words, capsys):
    path, (changed, message) = sent(), CHANGES[line]
    text = (path / "config.toml").read_text()
    assert line in text
    (path / "config.toml").write_text(text.replace(line, changed))
    assert run(words, path) == 2
    assert message in capsys.readouterr().err


def test_a_config_that_was_cut_short_is_not_completed_by_defaults(sent, capsys):
    path = sent()
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text[: text.index("hidden")])
    assert run("export", path) == 2
    assert "hidden: " in capsys.readouterr().err


# Which checkpoint


def test_which_checkpoint_is_exported_is_always_said(sent, capsys):
    path = sent()
    best = (path / "best").read_text().strip()
    assert run("export", path) == 0
    assert f"Run {path}, {best} (best)" in capsys.readouterr().err
    assert run("export", path, "--checkpoint", OLDER) == 0
    assert f"Run {path}, {OLDER}\n" in capsys.readouterr().err


def test_a_broken_newest_checkpoint_is_said(sent, capsys):
    path = sent()
    (path / "checkpoints" / NEWEST / "weights.safetensors").write_bytes(b"")
    assert run("export", path, "--checkpoint", "latest") == 0
    said = capsys.readouterr().err
    assert f"Skipped {NEWEST}: weights.safetensors has 0 bytes" in said
    assert f"Run {path}, {OLDER} (latest)" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no checkpoint was marked as the best one"),
        ("", "names '', which is no checkpoint"),
        ("\0" * 18, "which is no checkpoint"),
        ("step_000000000999\n", "names 'step_000000000999', which is no checkpoint"),
        ("x" * 5_000, "is broken: it is larger than 100 bytes"),
    ],
    ids=["missing", "empty", "zeroed", "other", "long"],
)
def test_a_missing_or_broken_best_is_said(sent, text, words, capsys):
    path = sent()
    (path / "best").unlink()
    if text is not None:
        (path / "best").write_text(text)
    assert run("export", path) == 0
    said = capsys.readouterr().err
    assert words in said
    assert f"Run {path}, {NEWEST} (best)" in said


# Terminals


@pytest.mark.slow
def test_no_escape_sequence_reaches_the_terminal(sent, tmp_path, capsys):
    path = sent().rename(tmp_path / f"sent{ESCAPE}")
    config = path / "config.toml"
    manifest = path / "checkpoints" / NEWEST / "manifest.json"
    changes = {
        "an unknown key": lambda: config.write_text('"\\u001b]0;x\\u0007" = 1\n'),
        "a value": lambda: config.write_text('env = 3\nmode = "\\u001b]0;x\\u0007"\n'),
        "a setting in a manifest": lambda: forge(
            manifest, lambda content: content["numbers"].update(config={ESCAPE: ESCAPE})
        ),
        "an array in a manifest": lambda: forge(
            manifest, lambda content: content["files"].update({ESCAPE: {ESCAPE: {}}})
        ),
        "a trainer": lambda: (path / "run.json").write_text(
            json.dumps({"format": 1, "trainer": ESCAPE})
        ),
        "the best": lambda: (path / "best").write_text(ESCAPE),
        "a name": lambda: (path / f"x{ESCAPE}").symlink_to("nowhere"),
    }
    commands = [
        ["export", path], ["play", path, "--episodes", "1"], ["plot", path],
        ["resume", path, "--steps", "1"],
        ["report", path, "--out", tmp_path / f"page{ESCAPE}.html"],
        ["train", "dqn", "--run", ESCAPE], ["train", ESCAPE], [ESCAPE], ["export", "--x", ESCAPE],
        ["train", "dqn", "--config", f"none{ESCAPE}"], ["resume", f"none{ESCAPE}"],
        ["train", "dqn", "--env", ESCAPE, "--runs", tmp_path],
        ["train", "allo", "--data", f"none{ESCAPE}", "--runs", tmp_path],
        ["verify", f"none{ESCAPE}:x"], ["bench", ESCAPE], ["demo", ESCAPE],
    ]  # fmt: skip
    for what, change in {"nothing": lambda: None, **changes}.items():
        shutil.rmtree(path)
        shutil.copytree(MADE_BEFORE / "dqn", path)
        change()
        for words in commands if what == "nothing" else [*commands[:2], commands[4]]:
            command(*words)
            said = capsys.readouterr()
            assert "\x1b" not in said.out + said.err, (what, words)
            assert "\x07" not in said.out + said.err, (what, words)


def test_who_holds_a_lock_is_printable(sent):
    path = sent()
    with RunFolder.open(path, lock=True):
        (path / "lock").write_text(ESCAPE)
        with pytest.raises(RunInUse) as caught:
            RunFolder.open(path, lock=True)
    assert "\\x1b]0;x\\x07" in str(caught.value)


# What nobody foresaw


def test_an_unforeseen_error_is_one_line_with_a_saved_traceback(
    sent, monkeypatch, capsys, tmp_path
):
    def fails(*_):
        raise LookupError(f"somewhere deep {ESCAPE}\nand more")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("loopless.runs.pictures.plots.draw", fails)
    assert command("plot", sent()) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("loopless: unforeseen LookupError: somewhere deep \\x1b]0;x\\x07. ")
    (saved,) = tmp_path.glob("loopless-report-*.txt")
    assert str(saved) in line
    assert "Traceback" in saved.read_text()
    monkeypatch.setenv("LOOPLESS_TRACEBACK", "1")
    with pytest.raises(LookupError):
        command("plot", tmp_path / "sent")
