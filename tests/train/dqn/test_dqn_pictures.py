"""DQN on stacked pictures: frames that are stored once change no weight, and resume."""

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

from loopless.envs import EnvError, HostedEnvs
from loopless.runs import config as configs
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.config.changes import refuse_changes
from loopless.runs.failures import BadRun
from loopless.runs.progress.clock import Clock
from loopless.train import dqn
from loopless.train.dqn.config import DQN

SIDE, STACK = 8, 3
SPACE = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, STACK), np.uint8)


class Flicker(gymnasium.Env):
    """Random pictures; an episode ends now and then."""

    observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action):
        return self._picture(), float(action), bool(self.np_random.random() < 0.002), False, {}

    def _picture(self):
        return self.np_random.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)


class Shuffled(gymnasium.ObservationWrapper):
    """Frames of a stack in the wrong order."""

    def observation(self, observation):
        return observation[..., ::-1]


def flicker(**_):
    env = wrappers.FrameStackObservation(Flicker(), STACK)
    return wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), SPACE)


@pytest.fixture(autouse=True)
def registered():
    names = {"Flicker-v0": flicker, "Shuffled-v0": lambda **_: Shuffled(flicker())}
    for name, entry in names.items():
        gymnasium.register(name, entry_point=entry, max_episode_steps=110)
    yield
    for name in names:
        gymnasium.registry.pop(name)


def config(**changes):
    return DQN(
        **{
            "env": "Flicker-v0", "mode": "hosted", "steps": 240, "envs": 2, "train_every": 4,
            "batch_size": 8, "learning_starts": 80, "buffer_size": 160, "hidden": (8,),
            "eval_every": 0, "log_every": 120,
        } | changes
    )  # fmt: skip


def train(**changes):
    run = dqn.make(config(**changes))
    try:
        while run.step < run.total:
            run.advance(Clock())
        return run, {name: np.asarray(x) for name, x in run.arrays().items()}
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"prioritized": "exact", "n_step": 2, "double": True}])
def test_frames_stored_once_change_no_weight(changes):
    (once, new), (_, old) = train(**changes), train(frames="twice", **changes)
    assert new["replay/frames"].shape[1:] == (SIDE, SIDE, 1)
    assert int(once.agent.replay.size) == 160
    names = [name for name in new if not name.startswith("replay/")]
    assert names
    for name in names:
        np.testing.assert_array_equal(new[name], old[name], err_msg=name)


@pytest.mark.slow
def test_a_run_with_frames_goes_on_from_its_arrays():
    _, arrays = train()
    run = dqn.make(config(steps=320))
    try:
        run.restore(Checkpoint("saved", 240, "full", arrays, {"event": 60}))
        assert bool(run.agent.replay.ended.all())
        run.advance(Clock())
        assert int(run.learner.updates) > int(arrays["learner/updates"])
    finally:
        run.close()


@pytest.mark.slow
def test_pictures_that_are_no_stacks_are_refused():
    run = dqn.make(config(env="Shuffled-v0"))
    try:
        with pytest.raises(EnvError, match="--frames twice"):
            run.advance(Clock())
    finally:
        run.close()


def test_hosted_environments_know_their_stacks():
    with HostedEnvs("Flicker-v0") as envs, HostedEnvs("CartPole-v1") as vectors:
        assert envs.obs_space.stack == STACK
        assert vectors.obs_space.stack == 0


def test_a_run_from_before_there_was_the_setting_stores_frames_twice():
    text = 'env = "CartPole-v1"\n'
    assert configs.from_run(DQN, text, "config.toml").frames == "twice"
    assert configs.from_toml(DQN, text).frames == "once"
    check = refuse_changes(DQN(frames="twice"), "config.toml")
    check("step_1", {"config": {"env": "CartPole-v1"}})
    with pytest.raises(BadRun, match="frames: twice → once"):
        refuse_changes(DQN(), "config.toml")("step_1", {"config": {"env": "CartPole-v1"}})
