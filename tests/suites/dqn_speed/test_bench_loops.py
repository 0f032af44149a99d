"""Every training loop makes the gradient steps that its settings ask for, and learns from rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from loopless.bench.contest import Call, Contender, enter
from suites.dqn_speed import peers, plain, slices
from suites.dqn_speed.slices import Training
from suites.q_learning import updates

SMALL = Training(40, (6, 6), 8, every=10)
OFTEN = Training(20, (6,), 8, every=4, updates=2, repeats=3)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("contender", "case"),
    [
        (slices.IN_HOST, OFTEN),
        (slices.CONTENDERS[1], SMALL),
        *((peer, SMALL) for peer in peers.CONTENDERS),
        *((peer, replace(SMALL, envs=10)) for peer in (peers.COMPILED, plain.COMPILED)),
    ],
    ids=lambda x: getattr(x, "name", getattr(x, "label", None)),
)
def test_a_slice_makes_the_gradient_steps_it_should(contender, case):
    if contender.role == "peer":
        pytest.importorskip("sbx")
        pytest.importorskip("rejax")
    row = enter(contender, "steps", case).row
    assert (row.status, row.reason) == ("ok", "")


def test_the_compiled_form_makes_the_updates_written_out_in_numpy():
    case, layers = Training(100), updates.random_layers((120, 84), 1)
    config, target = case.config(), updates.random_layers((120, 84), 2)
    by_hand = updates.Plain(layers, target, slices.RULES, np.float64)
    online, moments = layers, plain.adam(config).init(layers)
    for first in range(0, 8 * case.batch, case.batch):
        rows = slice(first, first + case.batch)
        batch = {name: x[rows] for name, x in updates.transitions().items()}
        online, moments = plain.learn(config, online, moments, target, batch)
        by_hand.update(batch)
    assert updates.difference(online, by_hand.online.layers) < updates.TOLERANCE
    assert updates.difference(online, layers) > 1e-4


def test_the_compiled_form_stores_what_its_environments_did():
    run = plain.in_jax(replace(SMALL, envs=10))
    ring = {name: np.asarray(x)[: int(run.state.step)] for name, x in run.state.ring.items()}
    obs, following, ends = ring["obs"][10:], ring["next_obs"][:-10], ring["terminated"]
    assert np.array_equal(obs, following)  # ten environments in turn
    assert 0 < ends.sum() < len(ends) / 5
    assert np.abs(following[ends[:-10]]).max() <= 0.05  # where CartPole starts
    assert set(np.unique(ring["action"])) == {0, 1}
    assert (ring["reward"] == 1).all()


def test_gradient_steps_of_several_agents_count_once():
    sliced = object.__new__(slices.Slices)
    sliced.run = SimpleNamespace(learner=SimpleNamespace(updates=np.array([7, 7])))
    assert sliced._made() == 7


@pytest.mark.parametrize("made", [0, 3, 5])
def test_another_number_of_gradient_steps_is_found_out(made):
    idle = Contender("idle", "some", "ours", lambda case: Call(lambda: made, int))
    row = enter(idle, "steps", SMALL).row
    assert row.status == "disagrees"
    assert row.reason == f"{made} gradient steps in 40 steps, not 4"


def test_everyone_is_told_the_same():
    case = Training(100)
    config, told = case.config(), peers.options(case)
    assert (config.buffer_size, config.learning_starts, config.target_every) == (
        told["buffer_size"],
        told["learning_starts"],
        told["target_update_interval"],
    )
    assert (config.batch_size, config.train_every, config.updates) == (128, 10, 1)
    assert (told["batch_size"], told["train_freq"], told["gradient_steps"]) == (128, 10, 1)
    assert config.learning_rate == told["learning_rate"]
    assert config.explore_start == config.explore_end == told["exploration_final_eps"]
    assert not config.problems()
