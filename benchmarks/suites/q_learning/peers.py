"""Other libraries' DQN: `train`, the call that makes their gradient steps, on a full buffer.

Neither is double DQN, so each makes one forward pass less than the other contenders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.processes import peer
from suites.q_learning.plain import layers_of, network
from suites.q_learning.updates import STORED, TOLERANCE, Learned, Update

BASELINES, SBX = "Stable-Baselines3", "SBX"
BASELINES_NAMES = {
    "obs": "observations", "next_obs": "next_observations", "action": "actions",
    "reward": "rewards", "terminated": "dones",
}  # fmt: skip


def _options(case: Update) -> dict[str, Any]:
    return {
        "env": "CartPole-v1",
        "learning_rate": case.rules.rate,
        "gamma": case.rules.gamma,
        "buffer_size": STORED,
        "device": "cpu",
        "seed": case.seed,
    }


def fill_baselines(buffer: Any, stored: dict[str, np.ndarray]) -> None:
    """Fill a buffer of Stable-Baselines3 with the same values as a call of `add` for each row."""
    for ours, theirs in BASELINES_NAMES.items():
        into = getattr(buffer, theirs)
        into[...] = stored[ours].reshape(into.shape)
    buffer.full = True


def _fill(model: Any, case: Update) -> None:
    fill_baselines(model.replay_buffer, case.stored)
    model.set_logger(peer("stable_baselines3.common.logger").Logger(None, []))


def _baselines(case: Update) -> Call:
    model = peer("stable_baselines3").DQN(
        "MlpPolicy",
        policy_kwargs={"net_arch": list(case.hidden)},
        max_grad_norm=case.rules.max_norm or float("inf"),
        **_options(case),
    )
    _fill(model, case)
    for net, layers in ((model.q_net, case.online), (model.q_net_target, case.target)):
        net.q_net.load_state_dict(network(layers).state_dict())
    buffer: Any = model.replay_buffer
    drawn, gather = [], buffer._get_samples

    def remember(rows: np.ndarray, env: Any = None) -> Any:
        drawn.append(rows)
        return gather(rows, env)

    buffer._get_samples = remember

    def read(_: None) -> Learned:
        del buffer._get_samples
        rules = replace(case.rules, double=False)
        return Learned(np.stack(drawn), layers_of(model.q_net.q_net), rules)

    return Call(lambda: model.train(case.draws, case.batch), read)


def _sbx(case: Update) -> Call:
    widths = {"net_arch": [even_width(*case.hidden)]}
    model = peer("sbx").DQN("MlpPolicy", policy_kwargs=widths, **_options(case))
    _fill(model, case)
    return Call(lambda: model.train(case.batch, case.draws), None)


def can(contender: Contender, case: Update) -> bool:
    """Return whether a peer can do this case at all."""
    return case.repeats == 1 and (contender.name != SBX or len(case.hidden) == 2)


def even_width(first: int, second: int) -> int:
    """Return the width of two equal layers with as many products as `first` and `second` have."""
    return round((first * second) ** 0.5)


PEERS = (
    Contender(
        BASELINES, "stable-baselines3", "peer", _baselines, TOLERANCE,
        note="DQN.train: not double, so one forward pass less",
    ),
    Contender(
        SBX, "sbx-rl", "peer", _sbx,
        note="DQN.train: not double, no clipping, two layers of one width with as many products "
        "(its network has no others); answers not compared",
    ),
)  # fmt: skip
