"""The eigenvectors of a grid as they form: an animated GIF from a run's snapshots.

Painted by gathers from a palette, not by matplotlib: sixty frames take as long as one figure.
Imports NumPy, matplotlib for its colours and font, and Pillow, which matplotlib brings. Tests:
`tests/runs/test_eigenvectors.py`.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageColor, ImageDraw, ImageFont

from loopless.runs.pictures import look, snapshots
from loopless.runs.pictures.eigenvectors import ACROSS, SIGNED, WALL, Snapshot, aligned, on_grid

if TYPE_CHECKING:
    from loopless.runs.pictures.plots import Run

WIDTH = 760  # pixels, about
GAP, HEAD, LINE = 10, 34, 17  # between panels, of the title, of a caption
FRAME_MS, LAST_MS = 90, 2500
SHADES = 253  # of the palette; the rest is for walls, paper and ink
WALL_AT, PAPER_AT, INK_AT = SHADES, SHADES + 1, SHADES + 2


def film(run: Run) -> bytes | None:
    """A frame for each snapshot, all signs and scales those of the last; None if there is none."""
    found = [one for one in snapshots.history(run.folder) if "walls" in one]
    if len(found) < 2:
        return None
    last, _ = aligned(found[-1])
    most = np.abs(last).max(0)
    frames = [_frame(one, last, most) for one in found]
    data = io.BytesIO()
    times = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(
        data, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=False
    )
    return data.getvalue()


def _frame(snapshot: Snapshot, last: np.ndarray, most: np.ndarray) -> Image.Image:
    learned, _ = aligned(snapshot)
    # A vector that has not found its place yet has no sign of its own: the one nearer to the end.
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
        panel = _indices(on_grid(snapshot, learned[:, at] / most[at]))
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
    """Places in the palette of values in [−1, 1]; NaN is wall."""
    shade = np.clip(np.rint((np.nan_to_num(values) + 1) / 2 * (SHADES - 1)), 0, SHADES - 1)
    return np.where(np.isnan(values), WALL_AT, shade).astype(np.uint8)


def _palette() -> bytes:
    shades = matplotlib.colormaps[SIGNED](np.linspace(0, 1, SHADES), bytes=True)[:, :3]
    rest = [ImageColor.getrgb(colour) for colour in (WALL, "#FFFFFF", look.INK)]
    return shades.tobytes() + bytes(np.array(rest, np.uint8))


def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size)
