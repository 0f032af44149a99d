"""Files of models: which version wrote them, and settings that plain Stable-Baselines3 ignores."""

import io
import os
import warnings
import zipfile
from typing import Any

import stable_baselines3

VERSION = 1  # of the settings that a file of ours has besides Stable-Baselines3's
PRIORITIZED = ("alpha", "beta", "final_beta", "epsilon")


def split_settings(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a prioritized buffer for a file, and the options of a plain one."""
    ours = {name: value for name, value in options.items() if name in PRIORITIZED}
    plain = {name: value for name, value in options.items() if name not in PRIORITIZED}
    return {"version": VERSION, "kind": "prioritized", "options": ours}, plain


def read_settings(settings: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the options of the prioritized buffer that a file asks for, or None."""
    if settings is None:
        return None
    if settings.get("version") != VERSION or settings.get("kind") != "prioritized":
        raise ValueError(
            f"adapters.sb3: this file describes its replay buffer in version "
            f"{settings.get('version')!r}, kind {settings.get('kind')!r}; this loopless knows "
            f"version {VERSION}, kind 'prioritized'. Load it with the loopless that saved it, or "
            "with Stable-Baselines3 itself, which makes a plain buffer."
        )
    return dict(settings["options"]) or {"alpha": 0.6}


def check_version(path: Any) -> None:
    """Warn if another release of Stable-Baselines3 has written a model's file."""
    version = _version(path)
    if version is None:
        return
    installed = stable_baselines3.__version__
    if version.split(".")[:2] != installed.split(".")[:2]:
        warnings.warn(
            f"adapters.sb3: Stable-Baselines3 {version} has written this file, and {installed} "
            "reads it; what changed between the two is in its changelog",
            stacklevel=3,
        )


def _version(path: Any) -> str | None:
    """Return the version in a file, or None: the loader says what is wrong with it."""
    try:
        if isinstance(path, str | os.PathLike):
            path = next(p for p in (os.fspath(path), f"{os.fspath(path)}.zip") if os.path.isfile(p))
            with zipfile.ZipFile(path) as archive:
                return archive.read("_stable_baselines3_version").decode().strip()
        at = path.tell()
        try:
            with zipfile.ZipFile(io.BytesIO(path.read())) as archive:
                return archive.read("_stable_baselines3_version").decode().strip()
        finally:
            path.seek(at)
    except (OSError, KeyError, StopIteration, AttributeError, zipfile.BadZipFile, ValueError):
        return None
