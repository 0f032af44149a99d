"""How a run of ALLO ended, and how it got there: `python -m … RUN`, as JSON.

From its log, and the truth from its last snapshot. Imports NumPy. Tests:
`tests/suites/allo_learning/test_bench_allo_learning.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def evaluate(path: Path) -> dict[str, Any]:
    """Similarities [agents] at the end and at their best, curves, and the eigenvalues."""
    from loopless.runs.metrics import columns, read
    from loopless.runs.pictures import snapshots

    log = columns(read(path / "metrics.jsonl"))
    curves = log["similarity"].mean(2)  # [rows, agents]
    truth = snapshots.history(path)[-1]["kernel_eigenvalues"]
    found = log["eigenvalue"][-1]
    return {
        "final": curves[-1].tolist(),
        "best": np.nanmax(curves, 0).tolist(),
        "curve_steps": log["step"].tolist(),
        "curve_returns": np.round(curves.T, 5).tolist(),
        "details": {
            "similarity": np.round(log["similarity"][-1], 5).tolist(),
            "eigenvalue": found.tolist(),
            "true_eigenvalue": truth[: found.shape[1]].tolist(),
            "barrier": np.atleast_1d(log["barrier"][-1]).tolist(),
        },
    }


if __name__ == "__main__":
    print(json.dumps(evaluate(Path(sys.argv[1]))))
