"""Peak memory of one `gae` call beyond its inputs and outputs, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from loopless.process import peak_bytes, resident_bytes

SMALL_SHAPES = ((25, 4), (300, 1), (40, 40), (8, 700))


def measure(library: str, steps: int, envs: int) -> dict[str, Any]:
    """Bytes beyond inputs and outputs, and the bytes of one float32 array [steps, envs]."""
    module = "suites.returns.memory"
    command = [sys.executable, "-m", module, library, str(steps), str(envs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout)


def probe(library: str, steps: int, envs: int) -> dict[str, int]:
    """The measurement itself. Call it in a fresh process: peaks only ever grow."""
    import numpy as np

    import loopless as ll

    def call(arrays: list) -> tuple:
        if library == "torch":
            import torch

            arrays = [torch.from_numpy(x) for x in arrays]
        return ll.gae(*arrays, gamma=0.99, lambda_=0.95)

    # Every kernel that some shape may choose is compiled here, and not counted.
    for shape in SMALL_SHAPES:
        call(_inputs(*shape))
    arrays = _inputs(steps, envs)
    slack = peak_bytes() - resident_bytes()
    # Memory under an earlier peak would be used unseen: fill it up first.
    ballast = np.ones(max(slack, 0), np.uint8)
    before = peak_bytes()
    outputs = call(arrays)
    extra = peak_bytes() - before - sum(x.nbytes for x in outputs)
    del ballast
    return {"extra_bytes": max(extra, 0), "array_bytes": arrays[0].nbytes}


def _inputs(steps: int, envs: int) -> list:
    """Written in place, a row at a time: a temporary here would hide what the call allocates."""
    import numpy as np

    generator = np.random.default_rng(0)
    floats = [np.empty((steps, envs), np.float32) for _ in range(3)]
    for x in floats:
        generator.standard_normal(out=x, dtype=np.float32)
    flags = [np.empty((steps, envs), np.bool_) for _ in range(2)]
    for x in flags:
        for row in x:
            np.less(generator.random(envs, dtype=np.float32), 0.01, out=row)
    return [*floats, *flags]


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
