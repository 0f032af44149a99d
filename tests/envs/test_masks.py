"""Action masks: of what is acted on, in both modes, and heard by those policies that listen."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from support.scripted_envs import legal

from loopless.envs import EnvError, HostedEnvs
from loopless.envs.spaces import Box, Discrete, MultiDiscrete, mask_width, takes_mask


def acting(obs, mask):
    """The first legal action, for all to see that the mask was right."""
    np.testing.assert_array_equal(mask, legal(obs, mask.shape[1]))
    assert mask.dtype == bool
    return mask.argmax(1)


def assert_told(block):
    """Every mask is that of its observation, and is neither all true nor all false."""
    np.testing.assert_array_equal(block.all_masks, legal(block.all_obs, block.all_masks.shape[-1]))
    np.testing.assert_array_equal(block.masks, block.all_masks[:-1])
    np.testing.assert_array_equal(block.last_mask, block.all_masks[-1])
    assert 0.5 < block.all_masks.mean() < 0.8
    assert (block.terminated | block.truncated).sum() > 5


ENVS_OF = {
    "info": ("tests/Legal-v0", {}),
    "list": ("tests/Legal-v0", {"how": "list"}),
    "method": ("tests/LegalMethod-v0", {}),
}


@pytest.mark.parametrize("how", ENVS_OF)
def test_a_block_holds_the_masks_of_its_observations(how):
    env_id, kwargs = ENVS_OF[how]
    with HostedEnvs(env_id, 2, env_kwargs=kwargs) as world:
        assert_told(world.collect(acting, 12))
        np.testing.assert_array_equal(world.mask, legal(world.obs))
        again = world.collect(acting, 12)  # begins where the last one ended
        assert_told(again)
        world.restart(5)
        np.testing.assert_array_equal(world.mask, legal(world.obs))
        step = world.step([0, 0])
        np.testing.assert_array_equal(step.mask, legal(step.obs))


@pytest.mark.parametrize("how", ["info", "method"])
def test_workers_give_the_masks_that_one_process_gives(how):
    env_id, kwargs = ENVS_OF[how]
    options = {"vectorization": "async", "workers": 2, "env_kwargs": kwargs}
    with HostedEnvs(env_id, 3, seed=4, **options) as world:
        np.testing.assert_array_equal(world.mask, legal(world.obs))
        ours = world.collect(acting, 12)
    with HostedEnvs(env_id, 3, seed=4, env_kwargs=kwargs) as world:
        plain = world.collect(acting, 12)
    assert_told(ours)
    np.testing.assert_array_equal(ours.all_masks, plain.all_masks)


def vector(how, mode):
    env_id, kwargs = ENVS_OF[how]
    return SyncVectorEnv([lambda: gymnasium.make(env_id, **kwargs)] * 2, autoreset_mode=mode)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("how", ENVS_OF)
def test_vector_environments_of_any_mode_give_masks(how, mode):
    with HostedEnvs.around(vector(how, mode)) as world:
        assert_told(world.collect(acting, 20))
        np.testing.assert_array_equal(world.mask, legal(world.obs))


def test_environments_in_others_processes_are_asked():
    makers = [lambda: gymnasium.make("support.scripted_envs:tests/LegalMethod-v0")] * 2
    mode = AutoresetMode.SAME_STEP
    asked = AsyncVectorEnv(makers, context="spawn", autoreset_mode=mode)  # JAX must not be forked
    with HostedEnvs.around(asked) as world:
        assert_told(world.collect(acting, 12))


class Own(SyncVectorEnv):
    """Tells all masks by one method of its own."""

    def action_masks(self):
        return legal(np.array([env.unwrapped._obs(0) for env in self.envs]))


def test_a_vector_environment_s_own_method_counts():
    makers = [lambda: gymnasium.make("tests/Scripted-v0")] * 2
    with HostedEnvs.around(Own(makers, autoreset_mode=AutoresetMode.SAME_STEP)) as world:
        assert_told(world.collect(acting, 12))


def test_the_masks_of_several_choices_are_flat():
    with HostedEnvs("tests/Legal-v0", 2, env_kwargs={"sizes": [3, 4]}) as world:
        assert world.mask.shape == (2, 7)

        def both(obs, mask):
            np.testing.assert_array_equal(mask, legal(obs, 7))
            return np.stack([mask[:, :3].argmax(1), mask[:, 3:].argmax(1)], 1)

        assert world.collect(both, 4).all_masks.shape == (5, 2, 7)


@pytest.mark.parametrize(
    ("space", "n"),
    [(Discrete(4), 4), (MultiDiscrete((2, 3)), 5), (Box((2,)), 0)],
    ids=["Discrete", "MultiDiscrete", "Box"],
)
def test_a_mask_has_a_boolean_for_each_choice(space, n):
    assert mask_width(space) == n


def test_without_masks_there_are_none():
    with HostedEnvs("tests/Scripted-v0", 1) as world:
        seen = []
        block = world.collect(lambda *args: seen.append(len(args)) or np.zeros(1, int), 3)
        assert seen == [1, 1, 1]
        assert block.all_masks is block.masks is block.last_mask is world.mask is None
        assert "all_masks" not in block.arrays()
        assert world.step([0]).mask is None


class Listens:
    def __call__(self, obs, mask=None):
        return mask


@pytest.mark.parametrize(
    ("policy", "listens"),
    [
        (lambda obs: obs, False),
        (lambda obs, mask: mask, True),
        (lambda *args: args, True),
        (lambda obs, *, mask=None: mask, False),
        (Listens(), True),
        (np.arange(3).__getitem__, False),
    ],
    ids=["one", "two", "any", "keyword", "callable", "builtin"],
)
def test_a_policy_listens_if_it_takes_two_arguments(policy, listens):
    assert takes_mask(policy) == listens


def test_a_policy_of_one_argument_acts_as_ever():
    with HostedEnvs("tests/Legal-v0", 2) as world:
        assert_told(world.collect(lambda obs: np.zeros(2, int), 12))


def test_taxi_tells_which_moves_do_something():
    with HostedEnvs("Taxi-v4", 2, seed=1) as world:
        block = world.collect(lambda obs, mask: mask.argmax(1), 30)
        assert block.all_masks.shape == (31, 2, 6)
        env = world._loop._envs[0].unwrapped
        states = block.all_obs[:, 0].argmax(-1)
        np.testing.assert_array_equal(block.all_masks[:, 0], [env.action_mask(s) for s in states])


def test_a_mask_that_stays_away_is_refused():
    kwargs = {"how": "missing", "ends": [(4, "truncated")]}
    with (
        HostedEnvs("tests/Legal-v0", 1, env_kwargs=kwargs) as world,
        pytest.raises(EnvError, match=r"tests/Legal-v0: an action mask is missing; .*every reset"),
    ):
        world.collect(acting, 3)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_environment_s_mask_that_stays_away_is_refused(mode):
    make = lambda: gymnasium.make("tests/Legal-v0", how="missing", ends=[(4, "truncated")])  # noqa: E731
    with (
        HostedEnvs.around(SyncVectorEnv([make] * 2, autoreset_mode=mode)) as world,
        pytest.raises(EnvError, match=r'infos\["action_mask"\] is missing for some environments'),
    ):
        world.collect(acting, 3)


@pytest.mark.parametrize("n", [4, 6, 1])
def test_a_mask_of_another_length_is_refused(n):
    with pytest.raises(EnvError, match=rf"is of shape \({n},\); Discrete\(n=5\) needs .* \(5,\)"):
        HostedEnvs("tests/Legal-v0", 1, env_kwargs={"n": n})
    make = lambda: gymnasium.make("tests/Legal-v0", n=n)  # noqa: E731
    with pytest.raises(EnvError, match=rf"shape \(2, {n}\), but Discrete\(n=5\) needs \(2, 5\)"):
        HostedEnvs.around(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP))


def test_a_block_of_environments_without_masks_is_refused():
    with HostedEnvs("tests/Scripted-v0", 2) as plain, HostedEnvs("tests/Legal-v0", 2) as masked:
        for world, other in ((plain, masked), (masked, plain)):
            with pytest.raises(EnvError, match="must both have action masks, or neither"):
                world.collect(acting, 3, out=other.block(3))
