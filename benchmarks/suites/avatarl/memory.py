"""How much memory forward and backward take beyond the inputs and the gradient, in [N, V] arrays.

PyTorch in a process of its own, by its peak; JAX by what its compiler sets aside. Imports them when
asked. Tests: `tests/suites/avatarl/test_bench_avatarl_memory.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

from loopless.bench.result import Measurement
from loopless.process import peak_bytes, resident_bytes
from suites.avatarl import contenders as by
from suites.avatarl import published
from suites.avatarl.losses import Losses

OURS, TODAY, ENTROPY = "ours", "today", "entropy"  # what a child can be asked to run


def rows(case: Losses) -> list[Measurement]:
    """Of each contender; a failure ends up in its row."""
    probes = {
        by.ours("JAX", "fixed"): ("loopless", partial(in_jax, case)),
        by.ours("PyTorch", "fixed"): ("loopless", partial(in_torch, case, OURS)),
        by.FULL: ("torch", partial(in_torch, case, TODAY)),
        by.TORCH_ENTROPY: ("torch", partial(in_torch, case, ENTROPY)),
    }
    found = []
    for name, (library, probe) in probes.items():
        row: dict[str, Any] = {"unit": "arrays", "samples": 1}
        try:
            row["value"] = probe()
        except ImportError as problem:
            row |= {"status": "unavailable", "reason": str(problem)}
        except Exception as problem:
            row |= {"status": "failed", "reason": f"{type(problem).__name__}: {problem}"}
        role = "ours" if library == "loopless" else "reference"
        found.append(Measurement("memory", case.label, name, library, role, **row))
    return found


def in_jax(case: Losses) -> float:
    """The temporaries of the compiled program; it is not run."""
    import jax
    import jax.numpy as jnp

    from loopless import avatarl_loss

    logits = jax.ShapeDtypeStruct((case.count, case.vocabulary), jnp.float32)
    gold = jax.ShapeDtypeStruct((case.count,), jnp.int32)
    loss_of = partial(avatarl_loss, top_k=case.top_k)
    program = jax.jit(jax.value_and_grad(loss_of, has_aux=True)).lower(logits, logits, gold)
    held = program.compile().memory_analysis()
    if held is None:
        raise RuntimeError("this backend of JAX does not tell what its programs hold")
    return held.temp_size_in_bytes / (4 * case.size)


def in_torch(case: Losses, what: str) -> float:
    """The peak of a child process, less what it held before and less the gradient."""
    words = [what, str(case.vocabulary), str(case.top_k), str(case.count)]
    command = [sys.executable, "-m", "suites.avatarl.memory", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _peak(what: str, case: Losses) -> float:
    import torch
    from torch.nn.functional import cross_entropy

    from loopless import avatarl_loss

    def loss_of(student: Any, critic: Any, gold: Any) -> Any:
        if what == OURS:
            return avatarl_loss(student, critic, gold, top_k=case.top_k)[0]
        if what == TODAY:
            return published.vectorised(student, critic, gold, case.top_k, full=True)[0]
        return cross_entropy(student, gold)

    def inputs(count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        shape = (count, case.vocabulary)
        student = torch.randn(shape, generator=generator).requires_grad_()
        gold = torch.randint(case.vocabulary, (count,), generator=generator)
        return [student, torch.randn(shape, generator=generator), gold]

    loss_of(*inputs(8)).backward()  # code loaded, kernels compiled
    arrays = inputs(case.count)
    before = resident_bytes()
    loss_of(*arrays).backward()
    gradient = 4 * case.size
    return max(0.0, peak_bytes() - before - gradient) / gradient


if __name__ == "__main__":
    name, *sizes = sys.argv[1:]
    print(json.dumps(_peak(name, Losses(*map(int, sizes)))))
