"""The same student in eager PyTorch, as one would write it, with each loss.

Imports PyTorch when prepared. Tests: `tests/suites/avatarl/test_bench_avatarl_training.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from loopless.bench.contest import Contender
from loopless.nets.gpt.model import GPT
from suites.avatarl import published
from suites.avatarl.contenders import FULL, LOOPED
from suites.avatarl.plain import CROSS_ENTROPY
from suites.avatarl.training import TOLERANCE, First, Training, Update

EAGER = "PyTorch, eager: "
OURS, ENTROPY = f"{EAGER}our loss", f"{EAGER}cross-entropy"
TODAY, ORIGINAL = f"{EAGER}{FULL}", f"{EAGER}{LOOPED}"


def tensors(model: GPT, learns: bool) -> list[dict[str, Any]]:
    """The arrays of a model by name: those of all, then of each block."""
    import torch

    def of(arrays: dict[str, Any]) -> dict[str, Any]:
        return {
            name: torch.from_numpy(np.array(x)).requires_grad_(learns) for name, x in arrays.items()
        }

    named = {
        jax.tree_util.keystr(path, simple=True, separator="."): x
        for path, x in jax.tree_util.tree_leaves_with_path(model.blocks)
    }
    whole = {
        "tokens": model.tokens, "positions": model.positions,
        "scale": model.norm.scale, "bias": model.norm.bias,
    }  # fmt: skip
    blocks = [{name: x[i] for name, x in named.items()} for i in range(model.layers)]
    return [of(whole), *map(of, blocks)]


def logits(parts: list[dict[str, Any]], heads: int, inputs: Any) -> Any:
    """Logits [batch, block, V] of tokens [batch, block]."""
    from torch.nn import functional as F

    whole, *blocks = parts
    x = whole["tokens"][inputs] + whole["positions"][: inputs.shape[1]]
    batch, time, width = x.shape
    for own in blocks:
        y = F.layer_norm(x, (width,), own["norm_1.scale"], own["norm_1.bias"])
        y = y @ own["qkv.weight"] + own["qkv.bias"]
        q, k, v = (z.view(batch, time, heads, -1).transpose(1, 2) for z in y.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, time, width)
        x = x + y @ own["out.weight"] + own["out.bias"]
        y = F.layer_norm(x, (width,), own["norm_2.scale"], own["norm_2.bias"])
        y = F.gelu(y @ own["up.weight"] + own["up.bias"])
        x = x + y @ own["down.weight"] + own["down.bias"]
    return F.layer_norm(x, (width,), whole["scale"], whole["bias"]) @ whole["tokens"].T


def _prepare(case: Training, variant: str, loss_of: Callable[..., Any]) -> Update:
    import torch

    config, heads = case.config, case.student.heads
    critic = tensors(case.critic, learns=False) if variant != CROSS_ENTROPY else None
    done = 0

    def student() -> tuple[list[dict[str, Any]], list[Any], Any]:
        parts = tensors(case.student, learns=True)
        flat = [x for part in parts for x in part.values()]
        matrices = [x for x in flat if x.ndim == 2]
        others = [x for x in flat if x.ndim != 2]
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        betas = config.adam_beta_1, config.adam_beta_2
        return parts, flat, torch.optim.AdamW(groups, config.learning_rate, betas)

    def update(parts: Any, flat: Any, adam: Any, number: int) -> tuple[Any, Any]:
        windows = torch.from_numpy(case.material.windows.batch(number, config.windows)).long()
        inputs, gold = windows[:, :-1], windows[:, 1:].reshape(-1)
        judged = None
        if critic is not None:
            with torch.no_grad():
                judged = logits(critic, heads, inputs).flatten(0, 1)
        loss = loss_of(logits(parts, heads, inputs).flatten(0, 1), judged, gold, config.top_k)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(flat, config.max_gradient_norm)
        adam.step()
        return loss, norm

    own = student()

    def run() -> None:
        nonlocal done
        update(*own, done)
        done += 1

    def first() -> First:
        loss, norm = update(*student(), 0)
        return First(variant, loss.item(), norm.item())

    return Update(run, lambda _: None, first, 1)


def _our_loss(student: Any, critic: Any, gold: Any, k: int) -> Any:
    from loopless import avatarl_loss

    return avatarl_loss(student, critic, gold, top_k=k)[0]


def _entropy(student: Any, critic: Any, gold: Any, k: int) -> Any:
    from torch.nn.functional import cross_entropy

    return cross_entropy(student, gold)


def _today(student: Any, critic: Any, gold: Any, k: int) -> Any:
    return published.vectorised(student, critic, gold, k=k, full=True)[0]


def _looped(student: Any, critic: Any, gold: Any, k: int) -> Any:
    return published.looped(student, critic, gold, k=k)[0]


def _contender(name: str, role: Any, variant: str, loss: Any) -> Contender:
    library = "loopless" if role == "ours" else "torch"
    prepare = partial(_prepare, variant=variant, loss_of=loss)
    return Contender(name, library, role, prepare, TOLERANCE)


CONTENDERS = (
    _contender(OURS, "ours", "fixed", _our_loss),
    _contender(TODAY, "reference", "full", _today),
    _contender(ORIGINAL, "reference", "original", _looped),
    _contender(ENTROPY, "yardstick", CROSS_ENTROPY, _entropy),
)
