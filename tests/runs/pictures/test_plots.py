"""Every picture draws what the log says, at any length of run, with nothing on top of another."""

import json
import os
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread
from support import made_up_runs

from loopless.runs.glossary import METRICS
from loopless.runs.pictures import comparison, look, plots, series
from loopless.runs.pictures.plots import PICTURES, Run, curve_of
from loopless.runs.pictures.series import bootstrap_band, iqm

RUNS = {
    "usual": {"events": [(100_000, "resume"), (400_000, "nan")]},
    "one point": {"count": 1, "steps": 1000, "evaluations": 1},
    "few points": {"count": 5, "steps": 5000, "evaluations": 2},
    "many points": {"count": 1500, "steps": 50_000_000},
    "eight seeds": {"seeds": 8, "count": 60, "events": [(100_000, "resume"), (400_000, "nan")]},
    "eight seeds, one point": {"seeds": 8, "count": 1, "evaluations": 1},
    "no evaluation": {"evaluations": 0, "count": 50},
    "many resumes": {"events": [(step, "resume") for step in range(0, 500_000, 20_000)]},
}

OF_EIGENVECTORS = {"eigenvectors", "eigenvectors_forming", "eigenvalues", "similarities", "visits"}


# One picture of each drawing function and of each of its switches is drawn of every kind of run,
# every other picture of the usual run.
EACH_FUNCTION = ("return", "time", "evaluation", "loss", "q_mean", "exploration", "speed")
CASES = [("usual", name) for name in PICTURES]
CASES += [(run, name) for run in RUNS if run != "usual" for name in EACH_FUNCTION]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each kind of run, read once."""

    @cache
    def read(kind: str) -> Run:
        folder = tmp_path_factory.mktemp("runs") / "dqn-CartPole-v1-0"
        return Run.read(made_up_runs.write(folder, made_up_runs.rows(**RUNS[kind])))

    return read


@pytest.fixture(scope="module")
def figures(runs):
    """Each picture of each kind of run, drawn once."""
    return cache(lambda kind, name: drawn(runs(kind), name))


def drawn(run: Run, name: str) -> Figure | None:
    with look.styled():
        figure = PICTURES[name].draw(run)
        if figure is not None:
            figure.canvas.draw()
    return figure


def boxes(figure: Figure) -> dict[str, object]:
    """Where the texts of a figure are, by what they say."""
    axes = figure.axes[0]
    texts = [figure._suptitle, *axes.texts, axes.xaxis.label, axes.yaxis.label]
    legend = axes.get_legend()
    texts += legend.get_texts() if legend else []
    left, right = sorted(axes.get_xlim())
    texts += [
        label for label, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if left <= at <= right
    ]  # fmt: skip
    low, high = sorted(axes.get_ylim())
    texts += [
        label for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
        if low <= at <= high
    ]  # fmt: skip
    shown = [text for text in texts if text.get_text()]
    return {f"{at} {text.get_text()}": text.get_window_extent() for at, text in enumerate(shown)}


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_no_text_is_cut_or_covered(figures, kind, name):
    figure = figures(kind, name)
    if figure is None:
        assert name == "evaluation" or name in OF_EIGENVECTORS
        return
    found = boxes(figure)
    inside = figure.bbox
    for said, box in found.items():
        assert box.x0 >= inside.x0 - 1, said
        assert box.x1 <= inside.x1 + 1, said
        assert box.y0 >= inside.y0 - 1, said
        assert box.y1 <= inside.y1 + 1, said
    pairs = [(a, b) for a in found for b in found if a < b]
    assert not [(a, b) for a, b in pairs if found[a].overlaps(found[b])]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_legend_is_never_on_the_data(figures, kind, name):
    figure = figures(kind, name)
    legend = figure and figure.axes[0].get_legend()
    if legend:
        assert legend.get_window_extent().y0 >= figure.axes[0].bbox.y1 - 2
        # Nor does it take the axes' place: they keep most of the picture.
        assert figure.axes[0].bbox.width > 0.85 * figure.bbox.width


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_picture_names_its_run_and_its_unit(figures, kind, name):
    figure = figures(kind, name)
    if figure:
        said = " ".join(boxes(figure))
        assert "dqn-CartPole-v1-0" in said
        units = {row.unit for row in METRICS.values() if row.picture == name}
        label = figure.axes[0].get_ylabel()
        assert label in units or (name, label) == ("time", "share of the time")


@pytest.mark.parametrize(
    "text", ["", '{"step": 0, "time": 0.0, "kind": "event", "event": "start"}\n', "torn", None]
)
def test_a_run_without_a_line_in_its_log_draws_nothing(tmp_path, text):
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    run = Run.read(tmp_path)
    assert [name for name in PICTURES if plots.draw(run, name) is not None] == []
    assert not (tmp_path / "plots").exists()


def test_metrics_that_are_no_numbers_draw_nothing_and_do_not_crash(tmp_path):
    found = [
        {key: None if key in METRICS else value for key, value in row.items()}
        for row in made_up_runs.rows(count=5)
    ]
    run = Run.read(made_up_runs.write(tmp_path, found))
    assert [name for name in PICTURES if drawn(run, name) is not None and name != "time"] == []


def test_all_pictures_of_the_table_can_be_drawn():
    assert {row.picture for row in METRICS.values() if row.picture} <= set(PICTURES)


def test_the_file_is_a_picture_of_the_size_asked_for(tmp_path):
    run = Run.read(made_up_runs.write(tmp_path, made_up_runs.rows(count=20)))
    path = plots.draw(run, "return")
    assert path == tmp_path / "plots" / "return.png"
    assert imread(path).shape[:2] == (540, 960)
    assert [file.name for file in path.parent.iterdir()] == ["return.png"]


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    run = Run.read(made_up_runs.write(tmp_path, made_up_runs.rows(count=20)))
    path = plots.draw(run, "return")
    before = path.read_bytes()

    write = os.write

    def full(file, data):
        write(file, data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match="No space"):
        plots.draw(run, "return")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["return.png"]


def test_a_picture_takes_the_old_ones_place_and_is_not_written_over_it(tmp_path):
    run = Run.read(made_up_runs.write(tmp_path, made_up_runs.rows(count=3)))
    with plots.draw(run, "return").open("rb") as old:
        before = old.read()
        look.write(b"new", tmp_path / "plots" / "return.png")
        old.seek(0)
        assert old.read() == before  # whoever had it open still has all of it


def test_smoothing_keeps_flat_curves_flat():
    assert set(series.smooth(np.full(600, 0.001))) == {0.001}


def test_names_are_printed_as_they_are(tmp_path):
    run = Run.read(made_up_runs.write(tmp_path / "_a$x^{$b_", made_up_runs.rows(count=3)))
    plots.draw(run, "return")
    figure = comparison.comparison([run.folder])
    look.write(figure, tmp_path / "comparison.png")
    (said,) = (text.get_text() for text in figure.axes[0].get_legend().get_texts())
    assert "_a" in said


def test_settings_of_matplotlib_are_left_alone(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.draw(Run.read(made_up_runs.write(tmp_path, made_up_runs.rows(count=3))), "return")
    assert dict(matplotlib.rcParams) == before


def test_a_picture_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "PICTURES", {})

    @plots.picture("notes", suffix=".txt")
    def notes(run):
        return run.snapshots["words"].read_bytes()

    (tmp_path / "words").write_bytes(b"hello")
    run = Run.read(made_up_runs.write(tmp_path, []), {"words": tmp_path / "words"})
    assert plots.draw(run, "notes").read_bytes() == b"hello"
    assert plots.draw(run, "notes").name == "notes.txt"


def test_an_unknown_picture_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r'no picture "retrun". Known: return, time'):
        plots.draw(Run.read(tmp_path), "retrun")


def lines_of(figure: Figure) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}


def test_training_and_evaluation_are_drawn_as_logged(tmp_path):
    found = made_up_runs.rows(count=20, evaluations=5)
    figure = drawn(Run.read(made_up_runs.write(tmp_path, found)), "return")
    lines = lines_of(figure)
    train = [row["return_mean"] for row in found if row["kind"] == "train"]
    evaluation = [row["eval_return"] for row in found if row["kind"] == "eval"]
    np.testing.assert_array_equal(lines["training (min to max)"], train)
    np.testing.assert_array_equal(lines["evaluation (± std)"], evaluation)


def test_a_spread_does_not_reach_beyond_what_was_seen(tmp_path):
    row = {"step": 1, "time": 0.0, "kind": "eval", "eval_return": 490.0, "eval_return_std": 30.0}
    row |= {"eval_return_min": 400.0, "eval_return_max": 500.0}
    curve = curve_of(Run.read(made_up_runs.write(tmp_path, [row])), "eval_return")
    assert (curve.low, curve.high) == (460.0, 500.0)


def test_seeds_become_their_iqm_with_a_band(tmp_path):
    found = made_up_runs.rows(count=20, seeds=5, evaluations=0)
    figure = drawn(Run.read(made_up_runs.write(tmp_path, found)), "return")
    values = np.array([row["return_mean"] for row in found if row["kind"] == "train"])
    line = lines_of(figure)["training (IQM of 5 seeds, 95% band)"]
    np.testing.assert_allclose(line, iqm(values, axis=1))
    low, high = bootstrap_band([values.T])
    edge = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert edge.min() == pytest.approx(low.min())
    assert edge.max() == pytest.approx(high.max())


def test_events_are_marked_once_each_and_named(tmp_path):
    events = [(10, "resume"), (10, "resume"), (30, "resume"), (40, "nan"), (50, "interrupt")]
    found = made_up_runs.rows(count=50, steps=100, events=events)
    axes = drawn(Run.read(made_up_runs.write(tmp_path, found)), "loss").axes[0]
    ends = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2]
    marks = [first for first, last in ends if first == last]
    assert sorted(marks) == [10, 30, 40]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss", "resume", "nan"]


@pytest.mark.parametrize(("spread", "scale"), [(1e4, "log"), (2.0, "linear")])
def test_a_loss_over_decades_is_drawn_logarithmically(tmp_path, spread, scale):
    found = [
        {"step": at, "time": 0.0, "kind": "train", "loss": float(value)}
        for at, value in enumerate(np.geomspace(1, spread, 20))
    ]
    axes = drawn(Run.read(made_up_runs.write(tmp_path, found)), "loss").axes[0]
    assert axes.get_yscale() == scale


def test_the_time_split_is_stacked_up_to_all_of_it(tmp_path):
    run = Run.read(made_up_runs.write(tmp_path, made_up_runs.rows(count=20)))
    areas = drawn(run, "time").axes[0].collections
    assert len(areas) == 5
    assert areas[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(0.35)
    assert areas[-1].get_paths()[0].vertices[:, 1].max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ([0, 100_000, 200_000], ["0", "100k", "200k"]),
        ([0, 500_000, 1_000_000], ["0", "0.5M", "1.0M"]),
        ([0, 250_000, 500_000, 750_000, 1_000_000], ["0", "0.25M", "0.50M", "0.75M", "1.00M"]),
        ([0, 500, 1000], ["0", "500", "1,000"]),
        ([0, 2500, 5000], ["0", "2.5k", "5.0k"]),
        ([1_234_000, 1_234_500], ["1,234,000", "1,234,500"]),
        ([0, 0.2, 0.4], ["0", "0.2", "0.4"]),
        ([-500, -250, 0], ["−500", "−250", "0"]),
        ([0, 2e9, 4e9], ["0", "2G", "4G"]),
        ([0, 1e-7], ["0", "0.0000001"]),
        ([0.0], ["0"]),
        ([3.0], ["3"]),
        ([], []),
    ],
)
def test_ticks_tell_neighbours_apart(ticks, texts):
    assert look.ShortFormatter().format_ticks(ticks) == texts


@given(
    first=st.integers(0, 10**9), gap=st.sampled_from([1, 2, 5]), power=st.integers(0, 8),
    count=st.integers(2, 9),
)  # fmt: skip
def test_no_two_ticks_read_the_same(first, gap, power, count):
    step = gap * 10**power
    ticks = [(first // step + at) * step for at in range(count)]
    assert len(set(look.ShortFormatter().format_ticks(ticks))) == count


@given(values=st.lists(st.floats(-100, 100), min_size=1, max_size=300))
def test_smoothing_is_the_mean_of_the_neighbours(values):
    reach = len(values) // 100
    expected = []
    for at in range(len(values)):
        near = values[max(0, at - reach) : at + reach + 1]
        expected.append(sum(near) / len(near))
    np.testing.assert_allclose(series.smooth(np.array(values)), expected, rtol=1e-9, atol=1e-9)


@given(count=st.integers(1, 60), most=st.integers(1, 20))
def test_thinning_averages_each_value_once(count, most):
    values = np.arange(count, dtype=np.float64) ** 2
    thinned = series.thin(values, most)
    assert len(thinned) == min(count, most)
    bounds = np.linspace(0, count, len(thinned) + 1).astype(int)
    expected = [np.mean(values[a:b]) for a, b in pairwise(bounds)]
    np.testing.assert_allclose(thinned, expected)


def test_long_curves_keep_their_first_and_last_step():
    steps = np.arange(10_000) * 7 + 3
    curve = series.curve(steps, np.ones(10_000))
    assert len(curve.steps) == series.MOST_POINTS
    assert (curve.steps[0], curve.steps[-1]) == (steps[0], steps[-1])
    assert (curve.line == 1.0).all()


def test_gaps_are_closed_by_straight_lines():
    values = np.array([np.nan, 1.0, np.nan, np.nan, 7.0, np.nan])
    closed = series.close_gaps(np.arange(6), values)
    np.testing.assert_array_equal(closed, [1, 1, 3, 5, 7, 7])


def test_a_seed_without_a_number_is_left_out():
    values = np.array([[1.0, np.nan, 3.0], [2.0, np.nan, 4.0]])
    curve = series.curve(np.array([1, 2]), values)
    assert curve.seeds == 2
    np.testing.assert_array_equal(curve.line, [2.0, 3.0])


def test_schedules_keep_their_corners(tmp_path):
    found = made_up_runs.rows(count=400)
    curve = curve_of(Run.read(made_up_runs.write(tmp_path, found)), "epsilon")
    logged = [row["epsilon"] for row in found if row["kind"] == "train"]
    np.testing.assert_array_equal(curve.line, logged)


def test_a_log_with_a_torn_end_is_drawn(tmp_path):
    made_up_runs.write(tmp_path, made_up_runs.rows(count=5))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9})[:5])
    assert plots.draw(Run.read(tmp_path), "return")
