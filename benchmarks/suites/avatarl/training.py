"""Updates of a student, end to end: critic, model, loss, gradient, AdamW. The case, and ours.

Beside `train avatarl` stands the same student in eager PyTorch (`torch_training`), with each loss.
A contender is right if its first update has the loss of the dense answer in float64, and the
gradient that this answer sends through the model. Imports the trainer and so JAX. Tests:
`tests/suites/avatarl/test_bench_avatarl_training.py`.
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
from loopless.nets.gpt.model import GPT
from loopless.runs.progress.clock import Clock
from loopless.text.dataset import Dataset
from loopless.train.avatarl.config import AvataRL
from loopless.train.avatarl.critic import Critic
from loopless.train.avatarl.run import student_run
from loopless.train.lm.config import VOCABULARY
from loopless.train.lm.data import TextData
from suites.avatarl.plain import CROSS_ENTROPY, answer

TOLERANCE = 1e-3  # of loss and gradient norm, in float32 through all layers
UPDATES = 50  # in a call of ours


class First(NamedTuple):
    """What the first update tells, and of which loss."""

    variant: str
    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class Update(Call):
    """`run` is timed and makes `updates` of them; `first` makes the first one, apart."""

    first: Callable[[], First]
    updates: int


@dataclass(frozen=True)
class Training:
    """The default student and its critic, on tokens without a meaning: those take as long."""

    block: int = AvataRL.block
    batch: int = AvataRL.batch
    tokens: int = 1 << 20

    @cached_property
    def config(self) -> AvataRL:
        endless = {"steps": 10**9, "log_every": UPDATES, "warmup": 0, "learning_rate": 1e-3}
        return AvataRL(block=self.block, batch=self.batch, **endless)

    @property
    def size(self) -> int:
        """Tokens of an update."""
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
        """Of the first update, [windows, block + 1]."""
        return self.material.windows.batch(0, self.config.windows)

    def expected(self, variant: str) -> First:
        return _expected(self, variant)

    def check(self, contender: Contender, call: Update, output: Any) -> Verdict:
        found = call.first()
        expected = self.expected(found.variant)
        errors = [
            abs(own - right) / right for own, right in zip(found[1:], expected[1:], strict=True)
        ]
        wrong = not max(errors) <= contender.tolerance
        told = "loss and gradient are off by {:.1e} and {:.1e}".format(*errors)
        return Verdict(told if wrong else "", max(errors))


def model(config: AvataRL, seed: int) -> GPT:
    """A model whose logits are as far apart as those of a trained one."""
    made = GPT(VOCABULARY, config.block, config.size, jax.random.key(seed))
    return eqx.tree_at(lambda own: own.tokens, made, 10 * made.tokens)


@lru_cache(maxsize=8)
def _expected(case: Training, variant: str) -> First:
    inputs, gold = case.windows[:, :-1], case.windows[:, 1:]
    logits, back = jax.vjp(lambda own: own(inputs), case.student)
    student, critic = (
        np.asarray(x).reshape(-1, VOCABULARY) for x in (logits, case.critic(jnp.asarray(inputs)))
    )
    right = answer(student, critic, gold.reshape(-1), case.config.top_k, variant)
    sent = (right.gradients / gold.size).astype(np.float32).reshape(logits.shape)
    (gradient,) = back(sent)
    squares = [np.square(np.asarray(x, np.float64)).sum() for x in jax.tree.leaves(gradient)]
    return First(variant, float(right.losses.mean()), float(np.sqrt(sum(squares))))


def _ours(case: Training, loss: str) -> Update:
    config = replace(case.config, loss=loss)
    run = student_run(config, case.material, Critic("critic", case.critic))
    run.state = run.state._replace(weights=jax.tree.map(lambda x: x + 0, case.student))
    variant = CROSS_ENTROPY if loss == "ce" else config.variant

    def first() -> First:
        learner = run.algorithm.init(jax.random.key(0))._replace(weights=case.student)
        rows = jax.tree.map(lambda x: x[0], run.batches(0, 1, Clock()))
        _, told = jax.jit(run.algorithm.update)(learner, run.constants, rows, np.int32(0))
        return First(variant, float(told["loss"]), float(told["gradient_norm"]))

    return Update(partial(run.advance, Clock()), lambda _: None, first, UPDATES)


OURS, OURS_ENTROPY = "loopless train avatarl", "loopless train avatarl --loss ce"
CONTENDERS = (
    Contender(
        OURS, "loopless", "ours", partial(_ours, loss="avatarl"), TOLERANCE,
        note="critic included; a compiled chunk of updates",
    ),
    Contender(
        OURS_ENTROPY, "loopless", "yardstick", partial(_ours, loss="ce"), TOLERANCE,
        note="plain cross-entropy, no critic",
    ),
)  # fmt: skip
