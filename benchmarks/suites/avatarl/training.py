"""Updates of a student, end to end: critic, model, loss, gradient, AdamW. The case and contenders.

`train avatarl` is raced against the same student in eager PyTorch, with each loss. A contender is
right if the loss of its first update is that of `losses.answer` in float64, and its gradient norm
is that of the answer's gradient sent back through the model. Importing this imports JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.bench.result import Role
from loopless.nets.gpt.model import GPT
from loopless.runs.progress.clock import Clock
from loopless.text.dataset import Dataset
from loopless.train.avatarl.config import AvataRL
from loopless.train.avatarl.critic import Critic
from loopless.train.avatarl.run import student_run
from loopless.train.lm.config import VOCABULARY
from loopless.train.lm.data import TextData
from suites.avatarl.losses import CROSS_ENTROPY, answer
from suites.avatarl.plain import FULL, LOOPED, Form, entropy_in_torch, looped, our_loss, vectorised
from suites.processes import torch

TOLERANCE = 1e-3  # of loss and gradient norm, in float32 through all layers
UPDATES = 50  # in a call of ours


class First(NamedTuple):
    """What is checked of the first update, and the variant of the loss that it used."""

    variant: str
    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class Update(Call):
    """`run` is timed; `first` repeats the first update for the check."""

    first: Callable[[], First]


@dataclass(frozen=True)
class Training:
    """The default student and its critic, on random tokens, which take as long as real ones."""

    block: int = AvataRL.block
    batch: int = AvataRL.batch
    tokens: int = 1 << 20

    @cached_property
    def config(self) -> AvataRL:
        endless = {"steps": 10**9, "log_every": UPDATES, "warmup": 0, "learning_rate": 1e-3}
        return AvataRL(block=self.block, batch=self.batch, **endless)

    @property
    def size(self) -> int:
        """Return the tokens of an update."""
        return self.config.windows * self.config.block

    @property
    def label(self) -> str:
        config = self.config
        windows = f"{config.windows} windows of {config.block}"
        return f"{config.size} model, V = {VOCABULARY}, k = {config.top_k}, {windows}"

    @cached_property
    def material(self) -> TextData:
        ids = np.random.default_rng(0).integers(VOCABULARY, size=self.tokens, dtype=np.uint16)
        return TextData.of(self.config, Dataset(ids, ids[-4096:], VOCABULARY, None, {}))

    @cached_property
    def student(self) -> GPT:
        return model(self.config, seed=0)

    @cached_property
    def critic(self) -> GPT:
        return model(self.config, seed=1)

    @cached_property
    def windows(self) -> np.ndarray:
        """Return the windows of the first update, [windows, block + 1]."""
        return self.material.windows.batch(0, self.config.windows)

    def check(self, contender: Contender, call: Update, output: Any) -> Verdict:
        made = call.first()
        right = _expected(self, made.variant)
        errors = [abs(x - y) / y for x, y in zip(made[1:], right[1:], strict=True)]
        text = "loss and gradient are off by {:.1e} and {:.1e}".format(*errors)
        return Verdict("" if max(errors) <= contender.tolerance else text, max(errors))


def model(config: AvataRL, seed: int) -> GPT:
    """Return a model whose logits are as far apart as those of a trained one."""
    gpt = GPT(VOCABULARY, config.block, config.size, jax.random.key(seed))
    return eqx.tree_at(lambda gpt: gpt.tokens, gpt, 10 * gpt.tokens)


@lru_cache(maxsize=8)
def _expected(case: Training, variant: str) -> First:
    inputs, gold = case.windows[:, :-1], case.windows[:, 1:]
    logits, back = jax.vjp(lambda gpt: gpt(inputs), case.student)
    student, critic = (
        np.asarray(x).reshape(-1, VOCABULARY) for x in (logits, case.critic(jnp.asarray(inputs)))
    )
    loss, sent = answer(student, critic, gold.reshape(-1), case.config.top_k, variant)
    (gradient,) = back(sent.astype(np.float32).reshape(logits.shape))
    squares = [np.square(np.asarray(x, np.float64)).sum() for x in jax.tree.leaves(gradient)]
    return First(variant, loss, float(np.sqrt(sum(squares))))


def _ours(case: Training, loss: str) -> Update:
    config = replace(case.config, loss=loss)
    run = student_run(config, case.material, Critic("critic", case.critic))
    run.state = run.state._replace(weights=jax.tree.map(lambda x: x + 0, case.student))
    variant = CROSS_ENTROPY if loss == "ce" else config.variant

    def first() -> First:
        learner = run.algorithm.init(jax.random.key(0))._replace(weights=case.student)
        rows = jax.tree.map(lambda x: x[0], run.batches(0, 1, Clock()))
        _, report = jax.jit(run.algorithm.update)(learner, run.constants, rows, np.int32(0))
        return First(variant, float(report["loss"]), float(report["gradient_norm"]))

    return Update(partial(run.advance, Clock()), lambda _: None, first)


OURS, OURS_ENTROPY = "loopless train avatarl", "loopless train avatarl --loss ce"
JAX_CONTENDERS = (
    Contender(
        OURS, "loopless", "ours", partial(_ours, loss="avatarl"), TOLERANCE,
        note="critic included; a compiled chunk of updates",
    ),
    Contender(
        OURS_ENTROPY, "loopless", "yardstick", partial(_ours, loss="ce"), TOLERANCE,
        note="plain cross-entropy, no critic",
    ),
)  # fmt: skip


EAGER = "PyTorch, eager: "
TORCH_OURS, TORCH_ENTROPY_STEP = f"{EAGER}our loss", f"{EAGER}cross-entropy"
TORCH_TODAY, TORCH_ORIGINAL = f"{EAGER}{FULL}", f"{EAGER}{LOOPED}"


def tensors(model: GPT, learns: bool) -> list[dict[str, Any]]:
    """Return a model's arrays as tensors by name: those outside the blocks, then each block's."""

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
    """Return logits [batch, block, V] of tokens [batch, block]."""
    F = torch.nn.functional
    whole, *blocks = parts
    x = whole["tokens"][inputs] + whole["positions"][: inputs.shape[1]]
    batch, time, width = x.shape
    for block in blocks:
        y = F.layer_norm(x, (width,), block["norm_1.scale"], block["norm_1.bias"])
        y = y @ block["qkv.weight"] + block["qkv.bias"]
        q, k, v = (z.view(batch, time, heads, -1).transpose(1, 2) for z in y.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, time, width)
        x = x + y @ block["out.weight"] + block["out.bias"]
        y = F.layer_norm(x, (width,), block["norm_2.scale"], block["norm_2.bias"])
        y = F.gelu(y @ block["up.weight"] + block["up.bias"])
        x = x + y @ block["down.weight"] + block["down.bias"]
    return F.layer_norm(x, (width,), whole["scale"], whole["bias"]) @ whole["tokens"].T


def _prepare(case: Training, variant: str, form: Form) -> Update:
    config, heads = case.config, case.student.heads
    critic = tensors(case.critic, learns=False) if variant != CROSS_ENTROPY else None
    done = 0

    def student() -> tuple[list[dict[str, Any]], list[Any], Any]:
        parts = tensors(case.student, learns=True)
        flat = [x for part in parts for x in part.values()]
        groups = [
            {"params": [x for x in flat if x.ndim == 2], "weight_decay": config.weight_decay},
            {"params": [x for x in flat if x.ndim != 2], "weight_decay": 0.0},
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
        loss, _ = form(logits(parts, heads, inputs).flatten(0, 1), judged, gold, k=config.top_k)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(flat, config.max_gradient_norm)
        adam.step()
        return loss, norm

    made = student()

    def run() -> None:
        nonlocal done
        update(*made, done)
        done += 1

    def first() -> First:
        loss, norm = update(*student(), 0)
        return First(variant, loss.item(), norm.item())

    return Update(run, lambda _: None, first)


def _contender(name: str, role: Role, variant: str, form: Form) -> Contender:
    library = "loopless" if role == "ours" else "torch"
    return Contender(name, library, role, partial(_prepare, variant=variant, form=form), TOLERANCE)


TORCH_CONTENDERS = (
    _contender(TORCH_OURS, "ours", "fixed", our_loss),
    _contender(TORCH_TODAY, "reference", "full", partial(vectorised, full=True)),
    _contender(TORCH_ORIGINAL, "reference", "original", looped),
    _contender(TORCH_ENTROPY_STEP, "yardstick", CROSS_ENTROPY, entropy_in_torch),
)
