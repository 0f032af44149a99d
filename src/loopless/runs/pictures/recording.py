"""Frames of an episode as a GIF or an MP4.

GIFs need Pillow, which matplotlib brings; MP4s need ffmpeg, as a command or from imageio-ffmpeg.
Imports both when used. Tests: `tests/runs/test_recording.py`.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loopless.runs.failures import BadConfig, writing

KINDS = (".gif", ".mp4")


def check(path: Path) -> None:
    """BadConfig if nothing can be recorded there."""
    wrong = []
    if path.suffix.lower() not in KINDS:
        wrong.append(f"{path} is neither a .gif nor an .mp4.")
    if not path.parent.is_dir():
        wrong.append(f"there is no folder {path.parent}. Create it.")
    if path.suffix.lower() == ".mp4" and _ffmpeg() is None:
        wrong.append(
            "an MP4 needs ffmpeg: install it, or `pip install imageio-ffmpeg`; or record a .gif."
        )
    if wrong:
        raise BadConfig(wrong)


def write(path: Path, frames: Sequence[np.ndarray], rate: float) -> None:
    """Write frames [height, width, 3] of bytes, `rate` of them a second."""
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

    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=max(20, round(1000 / rate)), loop=0
    )


def _mp4(path: Path, frames: list[np.ndarray], rate: float) -> None:
    height, width, _ = frames[0].shape
    command = [
        str(_ffmpeg()), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{width}x{height}", "-r", f"{rate}", "-i", "-",
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(path),
    ]  # fmt: skip
    done = subprocess.run(command, input=b"".join(f.tobytes() for f in frames), capture_output=True)
    if done.returncode:
        raise BadConfig([f"ffmpeg could not write {path}: {done.stderr.decode().strip()}"])


def _ffmpeg() -> str | None:
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return None
    return imageio_ffmpeg.get_ffmpeg_exe()
