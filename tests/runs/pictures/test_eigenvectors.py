"""Pictures of eigenvectors show what was learned beside what is true, and nothing that is not."""

import io
from itertools import combinations

import made_up_snapshots
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from loopless.runs.pictures import eigenvectors, look, plots, snapshots

PICTURES = ("eigenvectors", "eigenvalues", "similarities", "visits")
NO_TRUTH = ("truth", "spaces", "weights", "similarities", "kernel_eigenvalues", "duals")
NO_GRID = (*NO_TRUTH, "walls", "cells", "visits")
RUNS = {
    "four rooms": {},
    "three seeds, a corridor": {"grid": "GridCorridor-12", "d": 3, "seeds": 3},
    "one vector, one moment": {"d": 1, "count": 1},
    "more than are shown": {"grid": "GridCorridor-12", "d": 12, "count": 2},
    "no truth": {"without": NO_TRUTH, "d": 3},
}


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "allo-GridRoom-4-with-a-long-name-17"
    return made_up_snapshots.write(folder, **RUNS[request.param])


@pytest.fixture(autouse=True)
def _fewer(monkeypatch):
    monkeypatch.setattr(eigenvectors, "MOST", 11)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    return made_up_snapshots.write(tmp_path_factory.mktemp("runs") / "allo-GridRoom-4-0", d=7)


def drawn(run, name) -> Figure:
    with look.styled():
        figure = plots.PICTURES[name].draw(run)
        assert isinstance(figure, Figure)
        figure.canvas.draw()
    return figure


def texts(figure):
    found = [figure._suptitle, *figure.texts]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        legend = axes.get_legend()
        found += legend.get_texts() if legend else []
    return {text for text in found if text.get_text()}


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_or_covered(run, name):
    if name == "similarities" and "similarity" not in run.train:
        return
    figure = drawn(run, name)
    boxes = [text.get_window_extent() for text in texts(figure)]
    assert all(figure.bbox.x0 - 1 <= box.x0 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)
    assert all(figure.bbox.y0 - 1 <= box.y0 and box.y1 <= figure.bbox.y1 + 1 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def shown(image):
    return np.ma.filled(image.get_array().astype(float), np.nan)


def test_learned_and_true_vectors_share_a_sign_and_a_scale_and_walls_are_apart(rooms):
    figure = drawn(rooms, "eigenvectors")
    last = snapshots.history(rooms.folder)[-1]
    (sheet,) = figure.axes
    for at in range(7):
        above, below = sheet.images[2 * at : 2 * at + 2]
        assert above.get_clim() == below.get_clim()
        np.testing.assert_array_equal(np.isnan(shown(above)), last["walls"])
        free = ~last["walls"]
        cosine = np.corrcoef(shown(above)[free], shown(below)[free])[0, 1] if at else 1.0
        assert cosine > 0.9
        truth = last["truth"][:, at]
        np.testing.assert_allclose(shown(below)[free], truth, atol=1e-5)
        title = sheet.texts[at].get_text()
        assert title.startswith(f"{at + 1} ")
        assert f"{last['similarities'][0, at]:.4f}" in title
        assert f"({last['kernel_eigenvalues'][at]:.4f})" in title


@pytest.mark.parametrize("without", [(), NO_TRUTH])
@pytest.mark.parametrize("grid", ["GridRoom-4", "GridRoom-1", "GridCorridor-12"])
def test_cells_are_squares_and_each_panel_is_below_its_caption(tmp_path, grid, without):
    run = made_up_snapshots.write(tmp_path / "run", grid=grid, d=7, without=without)
    figure = drawn(run, "eigenvectors")
    (sheet,) = figure.axes
    boxes = [image.get_window_extent() for image in sheet.images]
    assert len(boxes) == 7 * (1 if without else 2)
    rows, columns = sheet.images[0].get_array().shape
    for box in boxes:
        assert box.width / columns == pytest.approx(box.height / rows)
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
    captions = [text.get_window_extent() for text in sheet.texts]
    assert not [pair for pair in combinations(boxes + captions, 2) if pair[0].overlaps(pair[1])]
    for caption, first in zip(captions, boxes[:: len(boxes) // 7], strict=True):
        middle = (caption.x0 + caption.x1) / 2
        assert middle == pytest.approx((first.x0 + first.x1) / 2, abs=1)
        assert 0 < caption.y0 - first.y1 < 20


def test_of_an_eigenspace_the_basis_nearest_to_what_was_learned_is_shown(tmp_path):
    (last,) = made_up_snapshots.made_up("GridRoom-1", d=3, count=1)
    turn = np.eye(3)
    turn[1:, 1:] = [[0.6, -0.8], [0.8, 0.6]]  # within the plane of the second and third vector
    last["learned"] = (5 * last["truth"] @ turn)[None]
    learned, truth = eigenvectors.align(last)
    np.testing.assert_allclose(learned, truth, atol=1e-5)
    del last["spaces"]
    learned, truth = eigenvectors.align(last)
    assert np.abs(learned - truth).max() > 0.1


def test_a_vector_that_is_0_or_has_nothing_of_the_truth_is_drawn_as_it_is():
    (last,) = made_up_snapshots.made_up("GridCorridor-12", d=4, count=1)
    last["learned"][0, :, 1] = 0
    last["learned"][0, :, 2] = last["truth"][:, 3]
    learned, truth = eigenvectors.align(last)
    assert np.isfinite(learned).all()
    assert not learned[:, 1].any()
    np.testing.assert_allclose(truth, last["truth"][:, :4], atol=1e-5)


def test_without_truth_only_what_was_learned_is_drawn(tmp_path):
    run = made_up_snapshots.write(tmp_path / "run", without=NO_TRUTH)
    assert drawn(run, "eigenvectors")._suptitle.get_text() == "Eigenvectors"
    assert plots.draw(run, "similarities") is None


def test_states_without_a_grid_have_no_map(tmp_path):
    run = made_up_snapshots.write(tmp_path / "run", without=NO_GRID)
    for name in ("eigenvectors", "visits", "eigenvectors_forming"):
        assert plots.draw(run, name) is None
    assert plots.draw(run, "eigenvalues")


def test_true_eigenvalues_are_dashed_lines(rooms):
    axes = drawn(rooms, "eigenvalues").axes[0]
    dashed = [line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1]
    values = snapshots.history(rooms.folder)[-1]["kernel_eigenvalues"]
    np.testing.assert_allclose(dashed, values[:7], atol=1e-6)


@pytest.mark.parametrize(("scale", "factor"), [("", 0.5), ("half", 0.5), ("full", 0.25)])
def test_duals_are_drawn_as_the_eigenvalues_of_their_scale(tmp_path, scale, factor):
    run = made_up_snapshots.write(tmp_path, grid="GridCorridor-12", d=2, count=3)
    if scale:
        (tmp_path / "config.toml").write_text(f'scale = "{scale}"')
    axes = drawn(run, "eigenvalues").axes[0]
    thin = [line for line in axes.lines if line.get_linewidth() == 0.7 and len(line.get_xdata())]
    want = [-factor * one["duals"][0] for one in snapshots.history(run.folder)]
    np.testing.assert_allclose(np.stack([line.get_ydata() for line in thin], 1), want)


def test_visits_are_shares_of_all_observations(rooms):
    image = shown(drawn(rooms, "visits").axes[0].images[0])
    assert np.nansum(image) == pytest.approx(1)


def test_the_film_has_a_frame_a_snapshot_whose_last_is_the_last_state(rooms):
    film = Image.open(io.BytesIO(plots.PICTURES["eigenvectors_forming"].draw(rooms)))
    assert (film.format, film.n_frames) == ("GIF", 12)
    frames = []
    for at in range(film.n_frames):
        film.seek(at)
        frames.append(np.array(film.convert("RGB")))
    assert len({frame.tobytes() for frame in frames}) == 12
    assert film.info["duration"] > 1000  # the end stands a while
    wall = np.array([0xB8] * 3)
    walls = (frames[-1] == wall).all(-1)
    assert walls.any()
    assert all(((frame == wall).all(-1) == walls).all() for frame in frames)


def test_one_snapshot_makes_no_film(tmp_path):
    run = made_up_snapshots.write(tmp_path / "run", count=1, d=2)
    assert plots.draw(run, "eigenvectors_forming") is None


def test_files_have_their_names(tmp_path):
    run = made_up_snapshots.write(tmp_path, grid="GridCorridor-12", d=2, count=2)
    assert plots.draw(run, "eigenvectors").name == "eigenvectors.png"
    assert plots.draw(run, "eigenvectors_forming").name == "eigenvectors_forming.gif"
