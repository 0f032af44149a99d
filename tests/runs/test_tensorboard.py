"""What TensorBoard reads is what the log says."""

import importlib.util
import json

import pytest
from support import made_up_runs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from loopless.runs import tensorboard
from loopless.runs.columns import Log
from loopless.runs.failures import BadConfig
from loopless.runs.tensorboard import EventFiles


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder), purge_orphaned_data=True)
    read.Reload()
    return {
        tag: [(event.step, pytest.approx(event.value, rel=1e-6)) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def written(folder, rows) -> None:
    files = EventFiles(folder)
    files.write(rows)
    files.close()


def test_every_metric_is_read_back_at_its_step(tmp_path):
    rows = made_up_runs.rows(count=4, evaluations=2)
    written(tmp_path, rows)
    found = scalars(tmp_path / "tensorboard")
    for kind, metric, tag in (
        ("train", "loss", "train/loss"),
        ("train", "steps_per_second", "train/steps_per_second"),
        ("eval", "eval_return", "eval/return"),
    ):
        logged = [(row["step"], row[metric]) for row in rows if row["kind"] == kind]
        assert found[tag] == logged
    assert not [tag for tag in found if tag.endswith(("/step", "/time", "/kind"))]


def test_the_time_is_that_of_the_log(tmp_path):
    written(tmp_path, [{"step": 5, "time": 1234.5, "kind": "train", "loss": 1.0}])
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert read.Scalars("train/loss")[0].wall_time == 1234.5


def test_seeds_are_runs_beside_each_other(tmp_path):
    rows = made_up_runs.rows(count=3, seeds=2, evaluations=0)
    written(tmp_path, rows)
    for seed in range(2):
        logged = [(row["step"], row["loss"][seed]) for row in rows if row["kind"] == "train"]
        assert scalars(tmp_path / "tensorboard" / f"seed_{seed}")["train/loss"] == logged
    assert "train/epsilon" in scalars(tmp_path / "tensorboard")


def test_what_is_no_number_is_left_out(tmp_path):
    rows = [
        {"step": 1, "time": 0.0, "kind": "train", "loss": None, "td_error": 2.0},
        {"step": 2, "time": 0.0, "kind": "train", "loss": [None, 1.0]},
        {"step": 3, "time": 0.0, "kind": "event", "event": "nan", "message": "loss"},
    ]
    written(tmp_path, rows)
    assert scalars(tmp_path / "tensorboard") == {"train/td_error": [(1, 2.0)]}
    assert scalars(tmp_path / "tensorboard" / "seed_1") == {"train/loss": [(2, 1.0)]}


def test_values_can_be_read_while_the_file_is_open(tmp_path):
    files = EventFiles(tmp_path)
    files.write([{"step": 1, "time": 0.0, "kind": "train", "loss": 1.0}])
    assert scalars(tmp_path / "tensorboard") == {"train/loss": [(1, 1.0)]}
    files.close()


def test_a_resumed_run_is_shown_without_what_it_undid(tmp_path):
    folder = tmp_path / "tensorboard"
    old = [{"step": s, "time": 0.0, "kind": "train", "loss": 9.0} for s in (0, 1, 2)]
    new = [{"step": s, "time": 0.0, "kind": "train", "loss": 1.0} for s in (0, 1)]
    written(tmp_path, old)
    watching = EventAccumulator(str(folder), purge_orphaned_data=True)
    watching.Reload()
    assert len(watching.Scalars("train/loss")) == 3
    written(tmp_path, new)
    # Whoever opens it now, and whoever has watched all the time.
    assert scalars(folder)["train/loss"] == [(0, 1.0), (1, 1.0)]
    watching.Reload()
    assert [(e.step, e.value) for e in watching.Scalars("train/loss")] == [(0, 1.0), (1, 1.0)]


def test_resuming_again_and_again_leaves_one_file_with_anything_in_it(tmp_path):
    for _ in range(4):
        written(tmp_path, made_up_runs.rows(count=2, evaluations=0))
    sizes = [file.stat().st_size for file in (tmp_path / "tensorboard").iterdir()]
    assert len(sizes) == 2
    assert sizes.count(0) == 1


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "notes.txt").write_text("mine")
    written(tmp_path, made_up_runs.rows(count=1))
    assert (tmp_path / "tensorboard" / "notes.txt").read_text() == "mine"


def test_records_are_whole(tmp_path):
    written(tmp_path, made_up_runs.rows(count=5, evaluations=0))
    (file,) = (tmp_path / "tensorboard").iterdir()
    # Two records of the file itself, then one a row; the loader checks their checksums.
    assert len(list(RawEventFileLoader(str(file)).Load())) == 2 + 5


def test_without_the_package_there_is_a_clear_error(tmp_path, monkeypatch):
    assert tensorboard.problems() == []
    find = importlib.util.find_spec
    monkeypatch.setattr(
        tensorboard, "find_spec", lambda name: None if name == "tensorboard" else find(name)
    )
    (problem,) = tensorboard.problems()
    assert "pip install 'loopless[tensorboard]'" in problem
    with pytest.raises(BadConfig, match="not installed"):
        EventFiles(tmp_path)
    assert not (tmp_path / "tensorboard").exists()


def test_a_log_is_passed_on_once(tmp_path):
    made_up_runs.write(tmp_path, made_up_runs.rows(count=3, evaluations=0))
    log, files = Log(tmp_path / "metrics.jsonl"), EventFiles(tmp_path)
    for _ in range(2):
        for rows in log.refresh():
            files.write(rows)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        row = {"step": 600_000, "time": 0.0, "kind": "train", "loss": 0.5}
        file.write(json.dumps(row) + "\n")
    for rows in log.refresh():
        files.write(rows)
    files.close()
    assert len(scalars(tmp_path / "tensorboard")["train/loss"]) == 4
