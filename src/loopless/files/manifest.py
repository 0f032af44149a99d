"""The manifest of a checkpoint: which arrays it has, their checksums, and plain numbers.

It is canonical JSON without times, so that equal states give equal bytes, and has a checksum over
itself. What is read back is checked key by key; nothing in it is ever used as a path.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loopless.files.tensors import DTYPES, Broken, Entry

FORMAT = 1
WEIGHTS, STATE = "weights.safetensors", "state.safetensors"
LARGEST = 1 << 24  # bytes of a manifest; ours have a few thousand

Kind = Literal["full", "weights"]
Files = Mapping[str, Mapping[str, Entry]]


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says about itself."""

    step: int
    kind: Kind
    numbers: dict[str, Any]
    best: str | None  # name of the best checkpoint when this one was saved
    files: Files


def to_bytes(manifest: Manifest) -> bytes:
    """Return the content of `manifest.json`; ValueError for numbers that JSON cannot hold."""
    content = {
        "format": FORMAT,
        "step": manifest.step,
        "kind": manifest.kind,
        "numbers": manifest.numbers,
        "best": manifest.best,
        "files": {
            file: {name: entry._asdict() for name, entry in entries.items()}
            for file, entries in manifest.files.items()
        },
    }
    try:
        digest = hashlib.sha256(_canonical(content)).hexdigest()
    except (TypeError, ValueError) as error:
        raise ValueError(f"checkpoint: numbers must be JSON, finite and plain: {error}.") from None
    return _canonical(content | {"sha256": digest})


def from_bytes(data: bytes) -> Manifest:
    """Return the manifest in a file; Broken says why if it is damaged or of a newer format."""
    try:
        content = json.loads(data)
        version, digest = content["format"], content.pop("sha256")
        if type(version) is int and version > FORMAT:
            raise Broken(f"it is of a newer format, {version}; upgrade loopless")
        if hashlib.sha256(_canonical(content)).hexdigest() != digest:
            raise Broken("manifest.json differs from its checksum")
        step, kind, numbers = content["step"], content["kind"], content["numbers"]
        best = content["best"]
        files = {file: _entries(listed) for file, listed in content["files"].items()}
        expected = {WEIGHTS, STATE} if kind == "full" else {WEIGHTS}
        fits = kind in ("full", "weights") and files.keys() == expected and version == FORMAT
        plain = type(step) is int and isinstance(numbers, dict) and isinstance(best, str | None)
        if not (fits and plain):
            raise ValueError("keys of the wrong kind")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Broken(f"manifest.json is not a manifest ({type(error).__name__}: {error})") from None
    return Manifest(step, kind, numbers, best, files)


def differences(stored: Mapping[str, Entry], expected: Mapping[str, Entry]) -> list[str]:
    """Return in words how the arrays of a checkpoint differ from those that are expected."""
    lines = [f"{name} is missing" for name in expected if name not in stored]
    lines += [f"{name} is not expected" for name in stored if name not in expected]
    for name in stored.keys() & expected.keys():
        have, want = stored[name], expected[name]
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            lines.append(f"{name} is {_describe(have)}, expected {_describe(want)}")
    return sorted(lines)


def _entries(listed: Any) -> dict[str, Entry]:
    entries = {
        name: Entry(entry["dtype"], tuple(entry["shape"]), entry["sha256"])
        for name, entry in listed.items()
    }
    for name, entry in entries.items():
        sizes = all(type(size) is int and 0 <= size < 2**48 for size in entry.shape)
        known = isinstance(entry.dtype, str) and entry.dtype in DTYPES and len(entry.shape) <= 32
        if not (sizes and known and re.fullmatch("[0-9a-f]{64}", entry.sha256)):
            raise ValueError(f"{name[:80]} cannot be an array")
    return entries


def _describe(entry: Entry) -> str:
    return f"{entry.dtype} {list(entry.shape)}"


def _canonical(content: Any) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
