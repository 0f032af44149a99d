"""Settings that are arguments of the compiled programs: other values of them compile nothing."""

from dataclasses import fields, replace
from typing import get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dqn_cases import assert_near
from lm_cases import SMALL as SMALL_TEXT
from support.lowered import FAST_COMPILE

from loopless.envs import autoreset, make_compiled
from loopless.runs.progress.clock import Clock
from loopless.train import registry
from loopless.train.allo import algorithm as allo
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import move_to_device, read_source
from loopless.train.avatarl import algorithm as avatarl
from loopless.train.avatarl.config import AvataRL
from loopless.train.dqn import algorithm as dqn
from loopless.train.dqn.compiled import CompiledDQN
from loopless.train.dqn.config import DQN
from loopless.train.engine.settings import as_program, traced_settings
from loopless.train.lm import algorithm as lm
from loopless.train.lm.config import LM
from loopless.train.ppo import algorithm as ppo
from loopless.train.ppo.compiled import CompiledPPO
from loopless.train.ppo.config import PPO

CHAIN = {"env": "loopless/Chain-v0", "hidden": (6,), "envs": 2, "eval_episodes": 4}
OF_DQN = DQN(
    **CHAIN, train_every=8, steps=400, learning_starts=80, buffer_size=96, batch_size=8,
    target="polyak", target_every=16, tau=0.3, double=True, n_step=3, prioritized="exact",
    explore_steps=200, loss="huber", optimizer="adamw", learning_rate=0.01, learning_rate_end=1e-3,
    max_gradient_norm=0.3,
)  # fmt: skip
OF_PPO = PPO(
    **CHAIN, horizon=8, epochs=2, minibatches=2, steps=240, clip_end=0.1, value_clip=0.3,
    entropy_coefficient=0.03, entropy_end=0.01, target_kl=0.5, normalize_rewards=True,
)  # fmt: skip
OF_ALLO = ALLO(
    grid=".....\n.XX..\n....X\n", envs=20, env_steps=40, episode_length=20, steps=60, components=3,
    hidden=(6, 5), batch_size=16, barrier=(1.5,), barrier_rate=0.02, barrier_limit=2.0,
    integral_gain=0.1, dual_start=-0.5, dual_rate=0.05, discount=0.7, max_gap=15,
    gate_threshold=5.0, perturbation="exponential",
)  # fmt: skip
OF_TEXT = SMALL_TEXT | {"learning_rate_end": 1e-3, "weight_decay": 0.1}
OF_LM = LM(**OF_TEXT)
OF_AVATARL = AvataRL(**OF_TEXT | {"tokenizer": None}, top_k=2, variant="original")
CONFIGS = {"dqn": OF_DQN, "ppo": OF_PPO, "allo": OF_ALLO, "lm": OF_LM, "avatarl": OF_AVATARL}
VOCABULARY = 11

# Numbers that are shapes or branches of a program, or no part of any; the rest is TRACED.
OF_AGENTS = "seeds envs eval_every eval_episodes eval_max_steps step_timeout"
OF_TEXTS = (
    "vocabulary validation_share layers heads width block batch accumulate eval_every eval_windows"
)
STATIC = {
    "dqn": "overlap_events n_step buffer_size batch_size train_every updates repeats accumulate "
    f"newest {OF_AGENTS}",
    "ppo": f"horizon core_width epochs minibatches {OF_AGENTS}",
    "allo": "seeds doors door_seed envs env_steps episode_length components batch_size permute_at",
    "lm": OF_TEXTS,
    "avatarl": f"critic_steps critic_seed top_k {OF_TEXTS}",
}
OF_EVERY_RUN = {"seed", "log_every", "plot_every", "checkpoint_every"}

# Shapes, switches, and whether a setting is left out: each is another program.
OTHERS = {
    "dqn": {"batch_size": 9, "max_gradient_norm": None},
    "ppo": {"epochs": 3, "target_kl": None},
    "allo": {"batch_size": 17, "gate_threshold": None},
    "lm": {"on_nan": "skip"},
    "avatarl": {"variant": "fixed"},
}


def changed(config):
    """The config with another seed and another value of every traced setting."""

    def other(x):
        return x + 3 if isinstance(x, int) else 0.9 * x if x else 0.01

    values = {name: other(getattr(config, name)) for name in config.TRACED}
    config = replace(config, seed=config.seed + 1, **values)
    assert not config.problems(), config.problems()
    return config


# --- the programs of each trainer: an owner, and the arguments of its `init` and its `chunk` ------


def of_dqn(config):
    env = make_compiled(config.env)
    world = autoreset(env, config.envs)
    owner = CompiledDQN(dqn.build(config, world.obs_space, env.actions), world, world)
    key = jax.random.key(config.seed)
    return owner, (key,), (key, np.int32(30), np.int32(2)), {"learning": True}


def of_ppo(config):
    world = autoreset(make_compiled(config.env), config.envs)
    spaces = world.obs_space, world.action_space, world.max_steps
    key = jax.random.key(config.seed)
    owner = CompiledPPO(ppo.build(config, *spaces), world, world)
    return owner, (key,), (key, np.int32(3), np.int32(2)), {}


def of_allo(config):
    source = read_source(config)
    sampler, (data, *_) = move_to_device(config, source)
    key, table = jax.random.key(config.seed), jnp.asarray(source.table)
    owner = allo.build(config, sampler, table)
    return owner, (key, jnp.float32(1.5)), (table, data, key, np.int32(7), np.int32(2)), {}


def windows(config):
    shape = 2, config.accumulate, config.batch, config.block + 1
    return {"windows": np.random.default_rng(0).integers(0, VOCABULARY, shape, np.int32)}


def of_lm(config):
    owner = lm.Algorithm(config, VOCABULARY, lm.language_loss)
    numbers = np.int32(3), np.int32(2)
    return owner, (jax.random.key(config.seed),), ((), windows(config), *numbers), {}


def of_avatarl(config):
    owner = lm.Algorithm(config, VOCABULARY, avatarl.objective)
    critic, batches = lm.network(config, VOCABULARY, jax.random.key(5)), windows(config)
    shape = *batches["windows"].shape[:-1], config.block, lm.model_size(config).width
    batches["stream"] = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    numbers = np.int32(3), np.int32(2)
    return owner, (jax.random.key(config.seed),), (critic, batches, *numbers), {}


PROGRAMS = {"dqn": of_dqn, "ppo": of_ppo, "allo": of_allo, "lm": of_lm, "avatarl": of_avatarl}


def lowered(name, config) -> list[str]:
    """The programs of a run before they are compiled, as text."""
    owner, (key, *rest), arguments, options = PROGRAMS[name](config)
    settings = traced_settings(config)
    init, chunk = as_program(owner, "init"), as_program(owner, "chunk", **options)
    state = jax.eval_shape(init, key, settings, *rest)
    return [
        jax.jit(init).lower(key, settings, *rest).as_text(),
        jax.jit(chunk).lower(state, settings, *arguments).as_text(),
    ]


# --- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.TRAINERS)
def test_every_number_is_an_argument_or_known_to_be_none(name):
    numbers = {
        field.name
        for field in fields(CONFIGS[name])
        if get_origin(field.type) is not tuple
        and {field.type, *get_args(field.type)} & {int, float}
    }
    traced = CONFIGS[name].TRACED
    assert len(traced) == len(set(traced))
    assert set(traced) | set(STATIC[name].split()) | OF_EVERY_RUN == numbers
    assert not set(traced) & (set(STATIC[name].split()) | OF_EVERY_RUN)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.TRAINERS)
def test_another_value_of_every_setting_is_the_same_program(name):
    config = CONFIGS[name]
    assert traced_settings(config).keys() == set(config.TRACED)  # none of them is left out
    text = lowered(name, config)
    assert lowered(name, changed(config)) == text
    for setting, value in OTHERS[name].items():
        assert lowered(name, replace(config, **{setting: value})) != text, setting


def hosted_call(name, config) -> str:
    """The call of a hosted run's learner, as text."""
    run = registry.trainer(name).make(replace(config, mode="hosted"))
    try:
        agent = run.agent
        if name == "dqn":
            call = agent._calls[1, True], agent.state, agent.settings, agent.blocks[1][0].words
        else:
            rollout, _ = agent._collect(0, Clock())
            arguments = agent.settings, None, rollout, agent.key, np.int32(0)
            call = agent._learn, agent.learner, *arguments
        return call[0].lower(*call[1:]).as_text()
    finally:
        run.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_another_value_of_every_setting_is_the_same_hosted_program(name):
    text = hosted_call(name, CONFIGS[name])
    assert hosted_call(name, changed(CONFIGS[name])) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.TRAINERS)
def test_a_program_computes_what_it_computes_with_constants(name):
    config = changed(CONFIGS[name])
    owner, (key, *rest), arguments, options = PROGRAMS[name](config)
    settings = traced_settings(config)

    def both(key, settings):
        state = as_program(owner, "init")(key, settings, *rest)
        return as_program(owner, "chunk", **options)(state, settings, *arguments)

    program = jax.jit(both).lower(key, settings).compile(FAST_COMPILE)
    constant = jax.jit(both).lower(key, {}).compile(FAST_COMPILE)
    results = program(key, settings)
    assert_near(results, constant(key, {}), 1e-5, 1e-6)
    with pytest.raises(AssertionError):  # the settings do matter
        assert_near(results, program(key, traced_settings(CONFIGS[name])), 1e-5, 1e-6)


def test_a_whole_number_for_a_fraction_is_the_same_program():
    settings = traced_settings(replace(OF_PPO, gamma=1, steps=7))
    assert settings["gamma"].dtype == traced_settings(OF_PPO)["gamma"].dtype
    assert settings["gamma"].weak_type
    assert jnp.issubdtype(settings["steps"].dtype, jnp.integer)


def test_a_setting_that_is_left_out_is_no_argument():
    assert "target_kl" not in traced_settings(replace(OF_PPO, target_kl=None))
