"""Pictures of an episode as a GIF or an MP4: every frame there, or words that say why not."""

import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loopless.runs.failures import BadConfig, WriteFailed
from loopless.runs.pictures import film


def frames(count=5, height=11, width=13):
    """Each frame of its own colour."""
    return [np.full((height, width, 3), (50 * k, 255 - 50 * k, 10), np.uint8) for k in range(count)]


def test_a_gif_has_every_frame_in_order(tmp_path):
    film.write_episode(tmp_path / "a.gif", frames(), rate=10)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 5
        assert image.size == (13, 11)
        assert image.info["loop"] == 0
        for k in range(5):
            image.seek(k)
            assert image.info["duration"] == 100
            seen = np.asarray(image.convert("RGB"))[5, 5].astype(int)
            assert np.abs(seen - (50 * k, 255 - 50 * k, 10)).max() < 12


def test_frames_that_do_not_change_are_shown_for_their_time(tmp_path):
    """A GIF may hold one frame for two that are equal, but then for twice as long."""
    still = [frames()[0]] * 4 + [frames()[1]]
    film.write_episode(tmp_path / "a.gif", still, rate=10)
    with Image.open(tmp_path / "a.gif") as image:
        total = 0
        for k in range(image.n_frames):
            image.seek(k)
            total += image.info["duration"]
    assert total == 500


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """A command in ffmpeg's place: keeps its arguments and what it is fed, or fails."""

    def make(code=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "ffmpeg"
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/arguments"\ncat > "{tmp_path}/input"\n'
            f'for last; do :; done\necho video > "$last"\n'
            f'[ {code} = 0 ] || echo "no such codec" >&2\nexit {code}\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return tmp_path

    return make


def test_an_mp4_is_made_of_the_raw_frames(ffmpeg):
    folder = ffmpeg()
    film.check(folder / "a.mp4")
    film.write_episode(folder / "a.mp4", frames(), rate=10)
    assert (folder / "input").read_bytes() == b"".join(frame.tobytes() for frame in frames())
    arguments = (folder / "arguments").read_text().split("\n")
    assert arguments[arguments.index("-s") + 1] == "13x11"
    assert arguments[arguments.index("-r") + 1] == "10"
    assert (folder / "a.mp4").read_text() == "video\n"


def test_what_ffmpeg_says_is_passed_on(ffmpeg):
    folder = ffmpeg(1)
    with pytest.raises(BadConfig, match="no such codec"):
        film.write_episode(folder / "a.mp4", frames(), rate=10)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a.avi", "neither a .gif nor an .mp4"),
        ("nowhere/a.gif", "there is no folder"),
        ("a", "neither a .gif nor an .mp4"),
    ],
)
def test_what_cannot_be_recorded_is_told_beforehand(tmp_path, path, message):
    with pytest.raises(BadConfig, match=message):
        film.check(tmp_path / path)


def test_an_mp4_without_ffmpeg_is_told_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "_ffmpeg", lambda: None)
    with pytest.raises(BadConfig, match="needs ffmpeg"):
        film.check(tmp_path / "a.mp4")


def test_a_place_that_cannot_be_written_to_is_an_error_in_words(tmp_path):
    (tmp_path / "a.gif").mkdir()
    with pytest.raises(WriteFailed, match=r"a\.gif"):
        film.write_episode(tmp_path / "a.gif", frames(), rate=10)


@pytest.mark.parametrize(
    "pictures", [[], [None, None], [np.zeros((4, 4))], frames()[:1] + frames(width=7)], ids=len
)
def test_what_is_no_picture_is_an_error_in_words(pictures, tmp_path):
    with pytest.raises(BadConfig, match="no frames"):
        film.write_episode(tmp_path / "a.gif", pictures, rate=10)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def die_halfway(self, file, *args, **options):
        if hasattr(file, "write"):
            file.write(b"GIF89a")
        else:
            Path(file).write_bytes(b"GIF89a")
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, "save", die_halfway)
    with pytest.raises(KeyboardInterrupt):
        film.write_episode(tmp_path / "a.gif", [np.zeros((4, 4, 3), np.uint8)] * 2, 30.0)
    assert list(tmp_path.iterdir()) == []
