"""How DQN acts in both modes: judged without exploration, and SARSA does what it said it would."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from run_results import TINY, trainer_of

from loopless.runs.progress.clock import Clock
from loopless.train.engine.run import CompiledRun

pytestmark = pytest.mark.slow
MODES = ("compiled", "hosted")


def with_weights(trainer, weights):
    """Put another network into a trainer."""
    weights = jnp.asarray(weights, jnp.float32)
    learner = trainer.learner._replace(weights=weights)
    if isinstance(trainer, CompiledRun):
        trainer.state = trainer.state._replace(learner=learner)
    else:
        trainer.agent.state = learner, trainer.agent.replay
    return trainer


@pytest.mark.parametrize(("right", "score"), [(1.0, 1.0), (-1.0, 0.0)], ids=["right", "left"])
@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_is_without_exploration(mode, right, score):
    """Always right reaches the end from anywhere, always left never does."""
    config = replace(TINY, mode=mode, hidden=(), explore_end=1.0, eval_episodes=8)
    trainer = with_weights(trainer_of(config), [0.0] * 11 + [right])
    first, second = trainer.evaluate(), trainer.evaluate()
    trainer.close()
    assert first["eval_return"] == score
    assert first["eval_return_std"] == 0
    assert first["eval_episodes"] == 8
    length = first["eval_length_mean"]
    assert 1 <= length <= 5 if score else length == 20
    assert {k: np.sum(v) for k, v in first.items()} == {k: np.sum(v) for k, v in second.items()}


def stored(trainer):
    """The rows of the buffer, oldest first, [steps, envs, ...]."""
    if isinstance(trainer, CompiledRun):
        algorithm, ring = trainer.program.algorithm, trainer.state.replay
    else:
        algorithm, ring = trainer.agent.algorithm, trainer.agent.replay
    found = algorithm.replay.gather(ring, np.arange(int(ring.size)))
    return {k: np.asarray(v).reshape(-1, 2, *np.shape(v)[1:]) for k, v in found.items()}


@pytest.mark.parametrize("mode", MODES)
def test_sarsa_does_next_what_it_stored_as_the_next_action(mode):
    config = replace(TINY, mode=mode, sarsa=True, buffer_size=400, explore_end=1.0)
    trainer = trainer_of(config)
    while trainer.step < trainer.total:
        trainer.advance(Clock())
    rows = stored(trainer)
    trainer.close()
    goes_on = ~(rows["terminated"] | rows["truncated"])[:-1]
    assert goes_on.sum() > 100
    assert (~goes_on).sum() > 10
    said, done = rows["next_action"][:-1], rows["action"][1:]
    np.testing.assert_array_equal(said[goes_on], done[goes_on])


@pytest.mark.parametrize("mode", MODES)
def test_rows_follow_one_another(mode):
    """The successor of a step is where the next one begins, but for ends."""
    config = replace(TINY, mode=mode, buffer_size=400)
    trainer = trainer_of(config)
    while trainer.step < trainer.total:
        trainer.advance(Clock())
    rows = stored(trainer)
    trainer.close()
    goes_on = ~(rows["terminated"] | rows["truncated"])[:-1]
    np.testing.assert_array_equal(rows["next_obs"][:-1][goes_on], rows["obs"][1:][goes_on])
    assert np.any(rows["next_obs"][:-1][~goes_on] != rows["obs"][1:][~goes_on])
