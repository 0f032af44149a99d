"""What the founding note proposed for the loss, and those who followed it, in eager PyTorch.

Each is checked against the looped original, whose loss it was said to compute. Written from a
description. Imports PyTorch when prepared. Tests:
`tests/suites/avatarl/test_bench_avatarl_losses.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopless.bench.contest import Call, Contender
from suites.avatarl import contenders as by
from suites.avatarl import published
from suites.avatarl.contenders import torch_call
from suites.avatarl.losses import TOLERANCE, Losses
from suites.avatarl.plain import METHOD, TINY, Method

NOTE = "the note: sorted duplicates, softmax over the actions"
CRITIC = "after it: the critic's softmax over the actions, too"
TODAY = "after it: the student's softmax over the vocabulary again"
MASKED = "a fork: that, with a fixed width and duplicates masked"


def on_actions(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """Nothing over the vocabulary but the two top-k."""
    import torch

    with torch.no_grad():
        actions, present, n = published.distinct(student, critic, gold, k, 2 * k + 1)
        mentor = critic.gather(1, actions).masked_fill(~present, -1e10).softmax(-1)
        rewards = _rewards(mentor, actions == gold[:, None], present, n, method)
    tau = 1 + method.entropy_coefficient
    inside = (student.gather(1, actions) / tau).masked_fill(~present, -1e10)
    return (-(rewards * inside.log_softmax(-1) * present).sum(-1) / (n + TINY)).mean()


def masked(student: Any, critic: Any, gold: Any, k: int, method: Method = METHOD) -> Any:
    """2k + 1 places whatever is in them: nothing is read back, every shape is known."""
    import torch

    with torch.no_grad():
        tops = student.topk(k).indices, critic.topk(k).indices
        actions = torch.cat([gold[:, None], *tops], 1)
        same = actions[:, :, None] == actions[:, None, :]
        present = ~same.tril(-1).any(-1)
        n = present.sum(1)
        mentor = critic.softmax(-1).gather(1, actions)
        rewards = _rewards(mentor, actions == gold[:, None], present, n, method)
    tau = 1 + method.entropy_coefficient
    logs = (student / tau).log_softmax(-1).gather(1, actions)
    return (-(rewards * logs).sum(-1) / (n + TINY)).mean()


def _rewards(mentor: Any, is_gold: Any, present: Any, n: Any, method: Method) -> Any:
    import torch

    share = method.label_smoothing / (n - 1).clamp(min=1)
    reality = torch.where(is_gold, 1 - method.label_smoothing, share[:, None])
    u = reality**method.reality_weight * mentor**method.critic_weight
    return published.rewarded(u, present, n, method)


def _vectorised(student: Any, critic: Any, gold: Any, k: int, full: bool) -> Any:
    return published.vectorised(student, critic, gold, k, full=full)[0]


def _proposal(name: str, form: Callable[..., Any], claim: str, note: str) -> Contender:
    def prepare(case: Losses) -> Call:
        return torch_call(case, "original", partial(form, k=case.top_k))

    return Contender(name, "torch", "proposal", prepare, TOLERANCE, claim=claim, note=note)


PROPOSALS = (
    _proposal(
        NOTE,
        partial(_vectorised, full=False),
        "the same loss 5 to 10 × as fast, 30 × fewer launches",
        "another loss: tokens outside of the actions have no gradient, and β is a temperature",
    ),
    _proposal(
        CRITIC,
        on_actions,
        "a softmax about 1,524 × as fast",
        "that is 50304/33, counted; the rewards change too, for their threshold is not normalised",
    ),
    _proposal(
        TODAY,
        partial(_vectorised, full=True),
        "the gradient of every token is back",
        "β is still a temperature, which sharpens where the entropy bonus flattened",
    ),
    _proposal(
        MASKED,
        masked,
        "nothing is read back, and it compiles",
        "the loss of the last one; ours has the fixed width, too",
    ),
)
CONTENDERS = (
    by.ORIGINAL,
    *PROPOSALS,
    *(each for each in by.OURS if each.name == by.ours("PyTorch", "original")),
)
