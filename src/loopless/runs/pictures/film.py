"""Moving pictures: an episode as GIF or MP4, and the eigenvectors of a grid as they form.

GIFs need Pillow, which matplotlib brings; MP4s need ffmpeg, as a command or from imageio-ffmpeg.
The film of the eigenvectors is painted with NumPy and a palette, not by matplotlib: sixty frames
take as long as one figure.
"""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loopless.files import atomic
from loopless.runs.failures import BadConfig, writing
from loopless.runs.pictures import snapshots

if TYPE_CHECKING:
    from PIL.Image import Image

    from loopless.runs.pictures.eigenvectors import Snapshot
    from loopless.runs.pictures.plots import Run

KINDS = (".gif", ".mp4")
WIDTH = 760  # pixels, about
GAP, HEAD, LINE = 10, 34, 17  # pixels between panels, of the title, of a caption
FRAME_MS, LAST_MS = 90, 2500
SHADES = 253  # of the palette; the rest is for walls, paper and ink
WALL_AT, PAPER_AT, INK_AT = SHADES, SHADES + 1, SHADES + 2


def check(path: Path) -> None:
    """Raise BadConfig if no episode can be recorded to `path`."""
    problems = []
    if path.suffix.lower() not in KINDS:
        problems.append(f"{path} is neither a .gif nor an .mp4.")
    if not path.parent.is_dir():
        problems.append(f"there is no folder {path.parent}. Create it.")
    if path.suffix.lower() == ".mp4" and _ffmpeg() is None:
        problems.append(
            "an MP4 needs ffmpeg: install it, or `pip install imageio-ffmpeg`; or record a .gif."
        )
    if problems:
        raise BadConfig(problems)


def write_episode(path: Path, frames: Sequence[np.ndarray], rate: float) -> None:
    """Write frames [height, width, 3] of bytes, at `rate` frames a second."""
    shapes = {np.shape(frame) for frame in frames}
    if len(shapes) != 1 or [(len(shape), *shape[2:]) for shape in shapes] != [(3, 3)]:
        shown = ", ".join(map(str, shapes)) or "none"
        raise BadConfig([f"there are no frames [height, width, 3] to record; there is {shown}."])
    frames = [np.ascontiguousarray(frame, np.uint8) for frame in frames]
    with writing(str(path)):
        if path.suffix.lower() == ".gif":
            _gif(path, frames, rate)
        else:
            _mp4(path, frames, rate)


def _gif(path: Path, frames: list[np.ndarray], rate: float) -> None:
    from PIL import Image

    images, data = [Image.fromarray(frame) for frame in frames], io.BytesIO()
    duration = max(20, round(1000 / rate))
    images[0].save(data, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0)
    atomic.write_file(path, data.getvalue())


def _mp4(path: Path, frames: list[np.ndarray], rate: float) -> None:
    height, width, _ = frames[0].shape
    staged = path.with_name(f".{path.name}.staged.mp4")
    command = [
        str(_ffmpeg()), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{width}x{height}", "-r", f"{rate}", "-i", "-",
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(staged),
    ]  # fmt: skip
    pictures = b"".join(frame.tobytes() for frame in frames)
    try:
        done = subprocess.run(command, input=pictures, capture_output=True)
        if done.returncode:
            raise BadConfig([f"ffmpeg could not write {path}: {done.stderr.decode().strip()}"])
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def _ffmpeg() -> str | None:
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return None
    return imageio_ffmpeg.get_ffmpeg_exe()


def film(run: Run) -> bytes | None:
    """Draw a frame for each snapshot, with the signs and scales of the last one.

    Returns the bytes of a GIF, or None if there are fewer than two snapshots of a grid.
    """
    from loopless.runs.pictures.eigenvectors import align

    history = [snapshot for snapshot in snapshots.drawable(run.folder) if "walls" in snapshot]
    if len(history) < 2:
        return None
    last, _ = align(history[-1])
    scale = np.abs(last).max(0)
    frames = [_frame(snapshot, last, scale) for snapshot in history]
    data = io.BytesIO()
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(
        data, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=False
    )
    return data.getvalue()


def _frame(snapshot: Snapshot, last: np.ndarray, scale: np.ndarray) -> Image:
    from PIL import Image, ImageDraw

    from loopless.runs.pictures.eigenvectors import ACROSS, align, on_grid

    learned, _ = align(snapshot)
    # The sign of a vector that has hardly formed means nothing: use that of the last frame.
    learned = learned * np.where((learned * last).sum(0) < 0, -1, 1)
    count = learned.shape[1]
    blocks = math.ceil(count / ACROSS)
    across = math.ceil(count / blocks)
    height, width = snapshot["walls"].shape
    side = max(1, (WIDTH - GAP) // across // (width + GAP // 4))  # pixels of a cell
    wide, tall = side * width + GAP, side * height + GAP + LINE
    canvas = np.full((HEAD + blocks * tall, GAP + across * wide), PAPER_AT, np.uint8)
    captions = []
    for at in range(count):
        row, column = divmod(at, across)
        y, x = HEAD + row * tall, GAP + column * wide
        captions.append(((x, y), _caption(snapshot, at)))
        panel = _indices(on_grid(snapshot, learned[:, at] / scale[at]))
        panel = panel.repeat(side, 0).repeat(side, 1)
        canvas[y + LINE : y + LINE + len(panel), x : x + panel.shape[1]] = panel
    image = Image.fromarray(canvas)
    image.putpalette(_palette())
    draw = ImageDraw.Draw(image)
    draw.fontmode = "1"  # no shades of ink in this palette
    large, small = _font(15), _font(11)
    draw.text((GAP, GAP), f"step {int(snapshot['step']):,}", INK_AT, large)
    if "similarities" in snapshot:
        mean = f"mean similarity {snapshot['similarities'][0].mean():.4f}"
        draw.text((canvas.shape[1] - GAP, GAP), mean, INK_AT, large, anchor="ra")
    for place, text in captions:
        draw.text(place, text, INK_AT, small)
    return image


def _caption(snapshot: Snapshot, at: int) -> str:
    if "similarities" not in snapshot:
        return f"{at + 1}"
    return f"{at + 1}: {snapshot['similarities'][0, at]:.3f}"


def _indices(values: np.ndarray) -> np.ndarray:
    """Return the palette's indices of values in [−1, 1]; NaN is a wall."""
    shade = np.clip(np.rint((np.nan_to_num(values) + 1) / 2 * (SHADES - 1)), 0, SHADES - 1)
    return np.where(np.isnan(values), WALL_AT, shade).astype(np.uint8)


def _palette() -> bytes:
    import matplotlib
    from PIL import ImageColor

    from loopless.runs.pictures.eigenvectors import SIGNED, WALL
    from loopless.runs.pictures.look import INK

    shades = matplotlib.colormaps[SIGNED](np.linspace(0, 1, SHADES), bytes=True)[:, :3]
    rest = [ImageColor.getrgb(colour) for colour in (WALL, "#FFFFFF", INK)]
    return shades.tobytes() + bytes(np.array(rest, np.uint8))


def _font(size: int) -> Any:
    from matplotlib import font_manager
    from PIL import ImageFont

    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)
