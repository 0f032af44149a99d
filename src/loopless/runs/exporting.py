"""A policy as a file for others: safetensors, and beside it a card in JSON that explains it.

Imports NumPy and safetensors. Tests: `tests/runs/test_exporting.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.runs.failures import BadConfig, writing


def write(path: Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> None:
    """`path` and the card beside it, each whole or not at all."""
    from safetensors.numpy import save

    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise BadConfig([f"{path} is no name of a .safetensors file in a folder that is there."])
    shapes = {name: [list(array.shape), array.dtype.name] for name, array in arrays.items()}
    text = json.dumps({**card, "arrays": shapes}, indent=1, ensure_ascii=False)
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    with writing(str(path)):
        atomic.write_file(path.with_suffix(".json"), text.encode() + b"\n")
        atomic.write_file(path, data)
