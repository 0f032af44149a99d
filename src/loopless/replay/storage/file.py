"""A buffer as one file: safetensors, with a manifest as JSON in its header.

One file, because one file can be replaced at once: it is written beside the old one, flushed to
the disk and renamed over it, so that whoever reads finds the old buffer or the new one. No
pickles. Imports NumPy and safetensors. Tests: `tests/replay/test_files.py`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

VERSION = 1
KEY, CHECK = "loopless", "loopless_sha256"  # the manifest, and its checksum


def write(path, kind: str, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write a buffer's `settings` and its `state()`, of ints and arrays."""
    from safetensors.numpy import save_file

    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{kind}.save: there is no folder {target.parent}. Create it.")
    arrays = {
        name: np.ascontiguousarray(value)
        for name, value in state.items()
        if isinstance(value, np.ndarray)
    }
    manifest = {
        "version": VERSION,
        "kind": kind,
        "settings": settings,
        "numbers": {name: value for name, value in state.items() if name not in arrays},
        "arrays": {name: [array.shape, array.dtype.name] for name, array in arrays.items()},
        "sha256": {name: _digest(array) for name, array in arrays.items()},
    }
    # Bytes: safetensors does not know all of NumPy's dtypes.
    flat = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
    staged = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        text = json.dumps(manifest)
        save_file(flat, staged, {KEY: text, CHECK: hashlib.sha256(text.encode()).hexdigest()})
        synchronize(staged)
        os.replace(staged, target)
    finally:
        staged.unlink(missing_ok=True)
    synchronize(target.parent)


def read(path, kind: str, where: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the state of a buffer of this `kind`; ValueError if the file is broken."""
    from safetensors import SafetensorError, safe_open

    where = where or f"{kind}.load"
    if not Path(path).is_file():
        raise FileNotFoundError(f"{where}: there is no file {path}.")
    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            if hashlib.sha256(header[KEY].encode()).hexdigest() != header[CHECK]:
                raise ValueError("its manifest differs from its checksum")
            manifest = json.loads(header[KEY])
            arrays = {
                name: file.get_tensor(name).view(dtype).reshape(shape)
                for name, (shape, dtype) in manifest["arrays"].items()
            }
        found, version = manifest["kind"], manifest["version"]
        settings, numbers = manifest["settings"], manifest["numbers"]
        sums = manifest["sha256"]
        broken = [name for name, array in arrays.items() if _digest(array) != sums[name]]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: {path} is no whole file of a buffer ({error!r}). Use another copy."
        ) from error
    if broken:
        raise ValueError(
            f"{where}: {path} is damaged: {', '.join(broken)} differ from their checksums. Use "
            f"another copy."
        )
    if version != VERSION or found != kind:
        raise ValueError(
            f"{where}: {path} holds a {found} of version {version}, expected a {kind} of version "
            f"{VERSION}. Load it with its own class."
        )
    return settings, numbers | arrays


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def synchronize(path: Path) -> None:
    """Have the disk hold a file, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
