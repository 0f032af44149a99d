"""The worlds of masks and of memory: closed forms beside plain loops, and two faces of each."""

from itertools import product

import jax
import numpy as np
import pytest

from loopless.envs import EnvError, HostedEnvs, autoreset, make_compiled
from loopless.envs.compiled.tables import Masked, Memory, TableState
from loopless.envs.worlds.gym import MaskedEnv, MemoryEnv
from loopless.envs.worlds.rules import MaskedWorld, MemoryWorld

KEY = jax.random.key(0)
WORLDS = [MaskedWorld(), MaskedWorld(1), MaskedWorld(7, actions=3), MemoryWorld(), MemoryWorld(0)]


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_value_iteration_arrives_at_the_closed_form(world, gamma):
    states, actions = world.rewards.shape
    q = np.zeros((states, actions))
    for _ in range(200):
        after = np.array(q)
        for s, a in product(range(states), range(actions)):
            onward = 0 if world.terminates[s, a] else gamma * after[world.next_states[s, a]].max()
            q[s, a] = world.rewards[s, a] + onward
    np.testing.assert_allclose(world.optimal_q(gamma), q, rtol=1e-12)


def plain_masked(length, buttons, state, action):
    """(next state, reward, terminated, legal) by if and else."""
    if action == state % buttons:
        if state == length - 1:
            return state, 1, True, True
        return state + 1, 0, False, True
    if action == (state + 1) % buttons:
        return max(state - 1, 0), 0, False, True
    return state, -1, True, False


@pytest.mark.parametrize(("length", "buttons"), [(5, 4), (1, 2), (6, 3)])
def test_every_button_does_what_the_rules_say(length, buttons):
    world = MaskedWorld(length, actions=buttons)
    for s, a in product(range(length), range(buttons)):
        found = world.next_states[s, a], world.rewards[s, a], world.terminates[s, a]
        assert (*found, world.legal[s, a]) == plain_masked(length, buttons, s, a)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_tables_have_the_types_of_a_transition(world):
    assert world.next_states.dtype == np.int32
    assert world.rewards.dtype == world.observations.dtype == np.float32
    assert world.terminates.dtype == bool


def returns(world, answer):
    """The return after each cue of a policy: (observations so far) → action."""
    env, totals = MemoryEnv(length=world.length), []
    for cue in range(2):
        obs, _ = env.reset(options={"position": cue})
        seen, total, terminated = [obs], 0.0, False
        while not terminated:
            obs, reward, terminated, truncated, _ = env.step(answer(seen))
            seen.append(obs)
            total += reward
            assert not truncated
        assert len(seen) == world.max_steps + 1
        totals.append(total)
    return totals


@pytest.mark.parametrize("length", [0, 3])
def test_no_policy_of_the_last_observation_alone_answers_more_than_half(length):
    world = MemoryWorld(length)
    looks = sorted({tuple(row) for row in world.observations.tolist()})
    assert len(looks) == (4 if length else 3)
    for chosen in product((0, 1), repeat=len(looks)):
        table = dict(zip(looks, chosen, strict=True))
        right = returns(world, lambda seen: table[tuple(seen[-1].tolist())])  # noqa: B023
        assert np.mean(right) == 0.5


@pytest.mark.parametrize("length", [0, 3])
def test_a_policy_that_remembers_the_first_is_always_right(length):
    assert returns(MemoryWorld(length), lambda seen: int(seen[0][1])) == [1.0, 1.0]


def test_the_question_looks_the_same_after_both_cues_and_so_do_the_blanks():
    world = MemoryWorld(2)
    after = world.observations[2:].reshape(3, 2, 3)
    np.testing.assert_array_equal(after[:, 0], after[:, 1])
    np.testing.assert_array_equal(after[:, 0], [[0, 0, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(world.observations[:2], [[1, 0, 0], [0, 1, 0]])


FACES = [(Memory, MemoryEnv, {"length": 2}, 2), (Masked, MaskedEnv, {"max_steps": 7}, 5)]


@pytest.mark.parametrize(
    ("compiled", "hosted", "fields", "starts"), FACES, ids=["memory", "masked"]
)
def test_both_faces_agree(compiled, hosted, fields, starts):
    env, other, ends = compiled(**fields), hosted(**fields), set()
    step, rng = jax.jit(env.step), np.random.default_rng(0)
    for position in range(starts):
        state = TableState(np.int32(position), np.int32(0))
        obs, _ = other.reset(seed=0, options={"position": position})
        np.testing.assert_array_equal(obs, env.observations[position])
        for _ in range(9):
            legal = env.action_mask(state) if compiled is Masked else np.ones(2, bool)
            if compiled is Masked:
                np.testing.assert_array_equal(legal, other.action_masks())
            action = int(rng.choice(np.flatnonzero(legal)))
            state, *ours = step(state, action, KEY)
            *theirs, _ = other.step(action)
            for mine, yours in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(mine, yours)
            ends.add((bool(theirs[2]), bool(theirs[3])))
            if theirs[2] or theirs[3]:
                break
    if compiled is Memory:
        assert ends == {(False, False), (True, False)}
    else:
        assert (False, True) in ends
        assert any(terminated for terminated, _ in ends)


@pytest.mark.parametrize(("face", "starts"), [(MemoryEnv, 2), (MaskedEnv, 5)])
def test_every_start_is_equally_likely(face, starts):
    env, count = face(), 1000  # that the compiled faces start alike is told in test_both_faces.py
    shown = np.array([env.reset(seed=seed)[0].argmax() for seed in range(count)])
    found, expected = np.bincount(shown, minlength=starts), count / starts
    assert len(found) == starts
    assert ((found - expected) ** 2 / expected).sum() < starts - 1 + 5 * np.sqrt(2 * (starts - 1))


def test_hosted_policies_hear_which_buttons_work():
    with HostedEnvs("loopless/Masked-v0", 3) as world:
        rng = np.random.default_rng(0)

        def policy(obs, mask):
            np.testing.assert_array_equal(mask, MaskedWorld().legal[obs.argmax(1)])
            return np.array([rng.choice(np.flatnonzero(row)) for row in mask])

        assert (world.collect(policy, 50).reward >= 0).all()
        block = world.collect(lambda obs: np.zeros(3, int), 50)
        assert (block.reward == -1).any()


def test_compiled_steps_tell_which_buttons_work():
    world = autoreset(make_compiled("loopless/Masked-v0"), 3)

    @jax.jit
    def first(key):
        running, obs = world.reset(key)
        return running, obs, world.mask(running), world.draws(key, 0)

    running, obs, mask, draws = first(KEY)
    np.testing.assert_array_equal(mask, MaskedWorld().legal[np.asarray(obs).argmax(1)])
    _, step = jax.jit(world.step)(running, np.asarray(mask).argmin(1), draws)
    assert step.terminated.all()
    assert (step.reward == -1).all()
    np.testing.assert_array_equal(step.mask, MaskedWorld().legal[np.asarray(step.obs).argmax(1)])


def test_all_wrong_fields_are_named_at_once():
    with pytest.raises(EnvError, match=r"length .* received 0; actions .*at least 2; received 1"):
        MaskedWorld(length=0, actions=1)
    with pytest.raises(EnvError, match=r"length must be an integer of at least 0; received -1"):
        MemoryWorld(-1)
