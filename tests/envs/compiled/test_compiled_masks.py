"""Action masks of compiled environments: those of what is acted on next."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_autoreset import ENVS, STEPS, WORLD, Ends, run

from loopless.envs import EnvError, autoreset

KEY = jax.random.key(0)


class EndsMasked(Ends):
    def action_mask(self, state):
        return (state.step + state.length + jnp.arange(5)) % 3 != 0


def expected(obs):
    """The masks of observations [..., 2, 2] of `EndsMasked`: (mark, length), (step, action)."""
    length, step = np.asarray(obs)[..., 0, 1], np.asarray(obs)[..., 1, 0]
    return ((step + length)[..., None] + np.arange(5)) % 3 != 0


MASKED = autoreset(EndsMasked(), ENVS)
ACTIONS = np.ones((STEPS, ENVS), np.int32)


@pytest.fixture(scope="module")
def rows():
    return run(MASKED, KEY, ACTIONS)[1]


def test_a_compiled_step_tells_the_mask_of_what_is_acted_on_next(rows):
    assert rows.ended.any()
    np.testing.assert_array_equal(rows.mask, expected(rows.obs))


def test_the_first_compiled_masks_are_those_of_the_reset():
    masks, obs = jax.jit(lambda key: [MASKED.mask(MASKED.reset(key)[0]), MASKED.reset(key)[1]])(KEY)
    np.testing.assert_array_equal(masks, expected(obs))


def test_masks_change_nothing_else_about_a_compiled_run(rows):
    _, plain = run(WORLD, KEY, ACTIONS)
    assert plain.mask is None
    jax.tree.map(np.testing.assert_array_equal, rows._replace(mask=None), plain)


def test_a_compiled_environment_without_masks_gives_none():
    running, _ = jax.eval_shape(WORLD.reset, KEY)
    assert WORLD.mask(running) is None


class Long(Ends):
    def action_mask(self, state):
        return jnp.ones(6, bool)


class Float(Ends):
    def action_mask(self, state):
        return jnp.ones(5)


@pytest.mark.parametrize("env", [Long(), Float()], ids=lambda env: type(env).__name__)
def test_a_compiled_mask_of_another_kind_is_refused(env):
    with pytest.raises(EnvError, match=r"action_mask is .*Discrete\(n=5\) needs 5 booleans"):
        autoreset(env)
