"""The runs of the suite `avatarl_learning` and their presets fit together."""

from pathlib import Path

import pytest

from loopless.runs.config import resolve
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.config import LM
from suites.avatarl_learning import suite
from suites.avatarl_learning.suite import STUDENTS, critic_job
from suites.dqn_learning.tasks import PRESETS, ROOT

JOBS = [job for student in STUDENTS for job in student.jobs()]


def config_of(job, monkeypatch):
    monkeypatch.chdir(ROOT)
    kind = LM if job.trainer == "lm" else AvataRL
    return resolve(kind, [*job.words[2:], *job.where(Path("runs"))], "loopless train")


def test_critic_and_students_see_equal_tokens(monkeypatch):
    configs = [config_of(job, monkeypatch) for job in (critic_job(), *JOBS)]
    assert {(x.steps, x.windows * x.block) for x in configs} == {(suite.STEPS, suite.TOKENS_A_STEP)}
    same = ("size", "learning_rate", "warmup", "eval_windows")
    assert len({tuple(getattr(x, name) for name in same) for x in configs}) == 1


@pytest.mark.parametrize("student", STUDENTS, ids=lambda each: each.label)
def test_seeds_differ_and_the_critic_is_one(student, monkeypatch):
    configs = [config_of(job, monkeypatch) for job in student.jobs()]
    assert [config.seed for config in configs] == [0, 1, 2]
    assert {config.critic for config in configs} == {Path("runs/critic")}
    assert {config.run for config in configs} == {job.name for job in student.jobs()}


def test_every_loss_and_variant_is_there_once(monkeypatch):
    configs = [config_of(student.jobs()[0], monkeypatch) for student in STUDENTS]
    chosen = [x.variant if x.loss == "avatarl" else x.loss for x in configs]
    assert chosen == ["fixed", "original", "subset", "full", "soft", "distillation", "ce"]


def test_every_preset_is_used_and_names_of_runs_differ():
    files = {path.stem for path in (ROOT / PRESETS / "avatarl").glob("*.toml")}
    assert files == {critic_job().path.stem, *(job.path.stem for job in JOBS)}
    assert len({critic_job().name, *(job.name for job in JOBS)}) == 1 + len(JOBS)


def test_the_command_is_what_a_user_types():
    (job,) = STUDENTS[0].jobs(seeds=1, steps=50)
    assert job.command == (
        "loopless train avatarl --config src/loopless/train/presets/avatarl/student.toml "
        "--variant fixed --seed 0 --steps 50 --critic runs/critic --runs runs --run fixed-seed0"
    )
