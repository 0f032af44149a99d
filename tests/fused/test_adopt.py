"""The pairs of `examples/adopt`: before and after make the same updates from the same rows."""

import contextlib
import difflib
import io
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "adopt"
PAIRS = ("dqn", "founding_dqn", "ppo", "sac")


def rows(count: int, **fields) -> dict[str, np.ndarray]:
    """Return `count` random transitions of the classic control tasks' kinds."""
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=(count, *shape)) for name, shape in fields.items()}
    batch = {name: x.astype(np.float32) for name, x in numbers.items()}
    return batch | {"done": (rng.random(count) < 0.1).astype(np.float32)}


def tensors(batch: dict) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def transitions(states: tuple[str, str], count: int) -> dict[str, np.ndarray]:
    batch = rows(count, **dict.fromkeys(states, (4,)), reward=())
    return batch | {"action": np.random.default_rng(1).integers(2, size=count)}


def dqn():
    def update(example, agent, first: bool):
        batch = transitions(("obs", "next_obs"), 128)
        given = tensors(batch) if example.name.endswith("before") else batch
        return [agent.update(given) for _ in range(1 if first else 8)]

    return lambda example: example.Agent(4, 2), update


def founding_dqn():
    def update(example, agent, first: bool):
        batch = transitions(("state", "next_state"), 8 * 32)
        stacked = {name: x.reshape(8, 32, *x.shape[1:]) for name, x in batch.items()}
        if first:
            stacked = {name: x[:1] for name, x in stacked.items()}
        example.set("UPDATES_PER_BATCH", 1 if first else 4)
        if example.name.endswith("before"):
            count = len(stacked["done"])
            stacked = [tensors({k: x[i] for k, x in stacked.items()}) for i in range(count)]
        return [agent.train(stacked)]

    return lambda example: example.DoubleDQN(4, 2), update


def ppo():
    def update(example, learner, first: bool):
        fields = {"obs": (4,), "log_prob": (), "value": (), "advantage": (), "return": ()}
        batch = rows(512, **fields)
        batch |= {"action": np.random.default_rng(1).integers(2, size=512)}
        batch["log_prob"] = np.float32(np.log(0.5)) + 0.1 * batch["log_prob"]
        torch.manual_seed(0)
        minibatches = example.shuffle()[: 1 if first else None]
        before = example.name.endswith("before")
        learner.update(tensors(batch) if before else batch, minibatches)
        return []

    return lambda example: example.Learner(4, 2), update


def sac():
    def update(example, agent, first: bool):
        fields = {"obs": (3,), "next_obs": (3,), "action": (1,), "reward": ()}
        batch = rows(128, **fields, noise=(1,), next_noise=(1,))
        for _ in range(1 if first else 8):
            agent.update(tensors(batch) if example.name.endswith("before") else batch)
        return []

    return lambda example: example.Agent(3, 1, 2.0), update


CASES = {"dqn": dqn, "founding_dqn": founding_dqn, "ppo": ppo, "sac": sac}


class Example:
    """One file, its functions as attributes."""

    def __init__(self, name: str) -> None:
        self.name, self._names = name, runpy.run_path(str(FOLDER / f"{name}.py"))

    def __getattr__(self, name: str):
        return self._names[name]

    def set(self, name: str, value) -> None:
        """Change a constant where the file's functions read it."""
        self._names["train" if "train" in self._names else "run"].__globals__[name] = value


def optimizers(agent) -> dict[str, torch.optim.Optimizer]:
    parts = vars(agent).items()
    return {name: part for name, part in parts if isinstance(part, torch.optim.Optimizer)}


def parameters(agent) -> list[torch.Tensor]:
    modules = [part for part in vars(agent).values() if isinstance(part, torch.nn.Module)]
    return [p.detach().clone() for module in modules for p in module.parameters()]


def pair(name: str):
    """Return before and after: example, agent; the agents with equal weights."""
    build, update = CASES[name]()
    examples = [Example(f"{name}_{which}") for which in ("before", "after")]
    agents = []
    for example in examples:
        torch.manual_seed(0)
        random.seed(0)
        agents.append(build(example))
    for mine, theirs in zip(parameters(agents[0]), parameters(agents[1]), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    return examples, agents, update


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_first_update_has_the_same_gradients_and_the_event_the_same_movement(name):
    """Adam's first moment is a tenth of the gradient: equal within float32's rounding of its sum.

    After several updates rounding is amplified where a gradient is near 0, so the whole movement
    is compared, to a hundredth of its length.
    """
    examples, agents, update = pair(name)
    start = parameters(agents[0])
    losses = [update(example, agent, True) for example, agent in zip(examples, agents, strict=True)]
    for mine, theirs in zip(*losses, strict=True):
        assert mine.item() == pytest.approx(theirs.item(), rel=1e-5)
    for key, optimizer in optimizers(agents[0]).items():
        other = optimizers(agents[1])[key]
        moments = [[s["exp_avg"] for s in one.state.values()] for one in (optimizer, other)]
        assert moments[0]
        for mine, theirs in zip(*moments, strict=True):
            scale = float(mine.abs().max())
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * scale)
    for example, agent in zip(examples, agents, strict=True):
        update(example, agent, False)
    moved = [
        torch.cat([(a - b).flatten() for a, b in zip(parameters(agent), start, strict=True)])
        for agent in agents
    ]
    assert moved[0].norm() > 0
    assert (moved[0] - moved[1]).norm() < 0.01 * moved[0].norm()


def test_other_gradients_are_noticed():
    """With another discount, the first moments differ by more than the tolerance above."""
    build, update = CASES["dqn"]()
    moments = []
    for gamma in (0.99, 0.98):
        example = Example("dqn_before")
        example.set("GAMMA", gamma)
        torch.manual_seed(0)
        agent = build(example)
        update(example, agent, True)
        moments.append([s["exp_avg"].clone() for s in agent.optimizer.state.values()])
    pairs = zip(*moments, strict=True)
    assert all((a - b).abs().max() > 1e-4 * a.abs().max() for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["before", "after"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_script_says_how_fast_it_was_and_what_it_reached(name, which, monkeypatch):
    path, steps = FOLDER / f"{name}_{which}.py", 1100 if name != "founding_dqn" else 200
    monkeypatch.setattr(sys, "argv", [str(path), "--steps", str(steps)])
    threads, printed = torch.get_num_threads(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    torch.set_num_threads(threads)
    speed, _, _, _, mean = printed.getvalue().split()
    assert float(speed) > 0
    assert np.isfinite(float(mean))


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_short_and_most_of_it_is_unchanged(name):
    before, after = (
        (FOLDER / f"{name}_{w}.py").read_text().splitlines() for w in ("before", "after")
    )
    assert max(len(before), len(after)) <= 150
    same = sum(
        block.size for block in difflib.SequenceMatcher(None, before, after).get_matching_blocks()
    )
    assert same > 0.6 * len(before)
