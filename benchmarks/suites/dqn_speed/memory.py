"""How much memory runs need, each in a process of its own; and whether chunks leave any behind.

Imports the trainer and Stable-Baselines3 in the children only. Tests:
`tests/suites/dqn_speed/test_bench_memory.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable

from loopless.process import peak_bytes, resident_bytes
from suites.dqn_speed.settings import Training

STEPS = 20_000
SLICE = Training(2_000)
WARM, COUNTED = 20, 50  # chunks


def measure(what: str) -> float:
    """Bytes that a child process of this kind needs at its peak, or leaves behind a chunk."""
    command = [sys.executable, "-m", "suites.dqn_speed.memory", what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _hosted(steps: int = STEPS) -> float:
    return _train("hosted", steps)


def _compiled(steps: int = STEPS) -> float:
    return _train("compiled", steps)


def _train(mode: str, steps: int) -> float:
    """A real run with its log and its checkpoints."""
    from loopless.train import commands

    config = SLICE.config()
    with tempfile.TemporaryDirectory() as folder:
        words = {
            "mode": mode, "runs": folder, "steps": steps, "eval-every": 0,
            "learning-starts": config.learning_starts, "loss": config.loss,
            "max-gradient-norm": config.max_gradient_norm,
        }  # fmt: skip
        flags = [text for name, value in words.items() for text in (f"--{name}", str(value))]
        if code := commands.train(["dqn", *flags]):
            raise SystemExit(code)
    return peak_bytes()


def _baselines(steps: int = STEPS) -> float:
    from suites.dqn_speed.peers import baselines_model

    baselines_model(SLICE).learn(steps)
    return peak_bytes()


def _bare_jax() -> float:
    """What our framework needs before anything is trained."""
    import equinox  # noqa: F401
    import gymnasium  # noqa: F401
    import jax
    import optax  # noqa: F401

    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    return peak_bytes()


def _bare_torch() -> float:
    """And theirs."""
    from loopless.bench.machine import warnings_of_peers_ignored

    with warnings_of_peers_ignored():
        import stable_baselines3  # noqa: F401
        import torch

    torch.ones(2).add(1)
    return peak_bytes()


def _grown(mode: str) -> float:
    from suites.dqn_speed.ours import Slices

    slices = Slices(SLICE, mode=mode)
    for _ in range(WARM):
        slices()
    before = resident_bytes()
    for _ in range(COUNTED):
        slices()
    return (resident_bytes() - before) / COUNTED


PROBES: dict[str, Callable[[], float]] = {
    "hosted": _hosted,
    "compiled": _compiled,
    "baselines": _baselines,
    "jax": _bare_jax,
    "torch": _bare_torch,
    "hosted growth": lambda: _grown("hosted"),
    "compiled growth": lambda: _grown("compiled"),
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))
