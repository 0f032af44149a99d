"""Runs are gathered by what they were told to do, and named by what tells them apart."""

import numpy as np
import pytest
from support import made_up_runs

from loopless.runs.failures import BadRun
from loopless.runs.pictures import comparison, look, series
from loopless.runs.pictures.comparison import group_runs
from loopless.runs.pictures.plots import Run
from loopless.runs.pictures.series import bootstrap_band, iqm

BASE = {"env": "CartPole-v1", "seed": 0, "double": False, "per": {"enabled": False}, "lr": 0.001}


@pytest.fixture
def run(tmp_path):
    """Makes a run from its name, changes to the config and settings of the log."""

    def make(name, config=BASE, **settings):
        settings = {"count": 20, "evaluations": 10} | settings
        return made_up_runs.write(tmp_path / name, made_up_runs.rows(**settings), config)

    return make


def groups_of(*folders):
    groups = group_runs([*map(Run.read, folders)], "loss")
    return {group.label: len(group.curves) for group in groups}


def test_runs_that_differ_by_seed_are_one_group(run):
    folders = [run(f"dqn-{seed}", BASE | {"seed": seed, "run": f"a{seed}"}) for seed in range(3)]
    assert groups_of(*folders) == {"dqn": 3}


def test_the_seeds_of_one_run_are_a_group(run):
    assert groups_of(run("dqn-0", seeds=4)) == {"dqn-0": 4}


def test_runs_and_seeds_are_pooled(run):
    assert groups_of(run("a", seeds=4), run("b", BASE | {"seed": 7})) == {"a": 5}


def test_how_a_run_is_watched_does_not_part_it_from_others(run):
    assert groups_of(run("a"), run("b", BASE | {"plot_every": 5, "tensorboard": True})) == {"a": 2}


def test_groups_are_named_by_what_tells_them_apart(run):
    labels = groups_of(
        run("a"),
        run("b", BASE | {"double": True, "per": {"enabled": True}}),
        run("c", BASE | {"lr": 0.01}),
    )
    assert [label.replace("\N{NO-BREAK SPACE}", " ") for label in labels] == [
        "no double, lr 0.001, no per.enabled",
        "double, lr 0.001, per.enabled",
        "no double, lr 0.01, no per.enabled",
    ]


def test_environments_speak_for_themselves(run):
    labels = groups_of(run("a"), run("b", BASE | {"env": "Acrobot-v1"}))
    assert list(labels) == ["CartPole-v1", "Acrobot-v1"]


def test_a_run_without_a_config_stands_alone(run):
    assert groups_of(run("a"), run("b", None), run("c", None)) == {"a": 1, "b": 1, "c": 1}


def test_the_line_is_the_iqm_on_the_common_steps(run):
    folders = [run(f"a-{seed}", seed=seed, steps=1000 + 100 * seed) for seed in range(5)]
    (group,) = group_runs([*map(Run.read, folders)], "eval_return")
    assert (group.steps[0], group.steps[-1]) == (140, 1000)
    runs = [Run.read(folder).evaluations for folder in folders]
    expected = [np.interp(group.steps, one["step"], one["eval_return"]) for one in runs]
    np.testing.assert_allclose(group.curves, expected)
    curve = comparison.curve_of(group)
    np.testing.assert_allclose(curve.line, iqm(np.array(expected)))
    np.testing.assert_allclose((curve.low, curve.high), bootstrap_band([np.array(expected)]))


def test_evaluations_are_compared_if_all_have_them(run):
    both = [run("a"), run("b")]
    assert comparison.comparison(both)._suptitle.get_text() == "Evaluation return"
    lacking = [run("a"), run("c", evaluations=0)]
    assert comparison.comparison(lacking)._suptitle.get_text() == "Training return"


def test_runs_without_returns_are_named(run, tmp_path):
    empty = made_up_runs.write(tmp_path / "empty", [])
    with pytest.raises(BadRun, match=r"are logged in .*empty\."):
        comparison.comparison([run("a"), empty])


def test_no_runs_are_refused():
    with pytest.raises(BadRun, match="no run"):
        comparison.comparison([])


@pytest.mark.parametrize("groups", [1, 2, 9])
def test_the_legend_is_beside_the_data_and_says_how_many_seeds(run, groups, tmp_path):
    folders = [
        run(f"{number}-{seed}", BASE | {"seed": seed, "lr": number}, seed=10 * number + seed)
        for number in range(groups)
        for seed in range(2)
    ]
    figure = comparison.comparison(folders)
    look.write(figure, tmp_path / "comparison.png")
    axes, legend = figure.axes[0], figure.axes[0].get_legend()
    assert len(legend.get_texts()) == groups
    assert all("2\N{NO-BREAK SPACE}seeds" in text.get_text() for text in legend.get_texts())
    assert not legend.get_window_extent().overlaps(axes.bbox)
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    styles = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == groups


def test_one_point_a_run_is_drawn(run, tmp_path):
    folders = [run(f"a-{seed}", count=1, evaluations=1, seed=seed) for seed in range(3)]
    look.write(comparison.comparison(folders), tmp_path / "comparison.png")


def test_curves_without_a_common_step_meet_in_one_point():
    early, late = (np.array([1.0, 2.0]), np.array([5.0, 6.0])), (np.array([4.0]), np.array([9.0]))
    steps, curves = series.align([early, late])
    assert steps.tolist() == [4.0]
    assert curves.tolist() == [[6.0], [9.0]]


def language_rows(windows: int, losses: list[float], critic: float = 1.3) -> list[dict]:
    """A log whose steps are worth `windows` tokens each."""
    return [
        {
            "step": step, "time": float(step), "kind": "eval", "tokens": step * windows,
            "validation_per_character": loss, "critic_per_character": critic,
        }
        for step, loss in enumerate(losses, 1)
    ]  # fmt: skip


def test_language_models_are_compared_at_equal_tokens(tmp_path):
    config = {"loss": "ce", "batch": 1}
    slow = made_up_runs.write(tmp_path / "a", language_rows(10, [3, 2, 1]), config)
    fast = made_up_runs.write(tmp_path / "b", language_rows(20, [3, 2, 1.5]), config | {"batch": 2})
    figure = comparison.comparison([fast, slow])
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens", "nats per character")
    first, second, critic = axes.get_lines()
    assert first.get_xdata().tolist() == [10, 20, 30]  # the lower of the two comes first
    assert second.get_xdata().tolist() == [20, 40, 60]
    assert (critic.get_label(), critic.get_ydata()[0]) == ("critic", 1.3)


def test_critics_that_differ_are_no_line_across(tmp_path):
    folders = [
        made_up_runs.write(tmp_path / name, language_rows(1, [3, 2], critic), {"loss": name})
        for name, critic in (("ce", 1.3), ("soft", 1.4))
    ]
    (axes,) = comparison.comparison(folders).axes
    assert len(axes.get_lines()) == 2


def test_a_setting_that_another_trainer_lacks_does_not_tell(tmp_path):
    folders = [
        made_up_runs.write(tmp_path / "a", language_rows(1, [3, 2]), {"steps": 2}),
        made_up_runs.write(tmp_path / "b", language_rows(1, [3, 2]), {"steps": 2, "top_k": 4}),
    ]
    for folder, trainer in zip(folders, ("lm", "avatarl"), strict=True):
        (folder / "run.json").write_text(f'{{"format": 1, "trainer": "{trainer}"}}')
    found = group_runs([*map(Run.read, folders)], "validation_per_character")
    assert [group.label for group in found] == ["lm", "avatarl"]
