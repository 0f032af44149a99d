"""Checks of DQN that pass for the real thing and must fail for each of its mutants."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from chain_runs import FOREVER, GAMMA, compiled_q
from dqn_cases import (
    ACTIONS,
    BETA,
    KEY,
    algorithm_of,
    assert_near,
    filled,
    learner_of,
    small,
)
from plain_update import SGD, Adam, clipped, flat, gradients, shaped
from scipy import stats

from loopless.envs.compiled.tables import Chain
from loopless.runs.progress.clock import Clock
from loopless.train.dqn.compiled import CompiledDQN
from loopless.train.dqn.config import DQN
from loopless.train.dqn.hosted import make
from loopless.train.dqn.loop import Loop


def fused_is_the_loop(**options) -> None:
    """The updates of an event against the same ones, one by one."""
    algorithm = algorithm_of(small(**options))
    start = learner_of(algorithm), filled(algorithm), KEY, BETA
    assert_near(jax.jit(algorithm.learn)(*start), Loop(algorithm).learn(*start), 1e-5, 1e-6)


# --- plain Python --------------------------------------------------------------------------------


def plain_rows(batch: dict) -> list[dict]:
    """A batch as a list of dicts of floats."""
    arrays = {name: np.asarray(x, np.float64) for name, x in batch.items()}
    return [
        {
            "obs": arrays["obs"][i].tolist(),
            "next_obs": arrays["next_obs"][i].tolist(),
            "action": int(arrays["action"][i]),
            "reward": float(arrays["reward"][i]),
            "terminated": bool(arrays["terminated"][i]),
            **({"next_action": int(arrays["next_action"][i])} if "next_action" in arrays else {}),
            **({"weight": float(arrays["weights"][i])} if "weights" in arrays else {}),
            **({"discount": float(arrays["discount"][i])} if "discount" in arrays else {}),
        }
        for i in range(len(arrays["reward"]))
    ]


def plain_updates(config: DQN, learner, batches: dict, variant: str) -> tuple:
    """Weights, losses, gradient norms and errors of an update on each of the batches."""
    shape = (3, 5, ACTIONS)
    theta, target = np.asarray(learner.weights).tolist(), np.asarray(learner.target).tolist()
    target = shaped(target or theta, *shape)
    stepper = {
        "adam": lambda: Adam(len(theta), config.learning_rate),
        "adamw": lambda: Adam(len(theta), config.learning_rate, config.weight_decay),
        "sgd": lambda: SGD(len(theta), config.learning_rate),
    }[config.optimizer]()
    losses, norms, errors = [], [], []
    for step in range(len(batches["reward"])):
        rows = plain_rows({name: np.asarray(x)[step] for name, x in batches.items()})
        loss, gradient, off = gradients(
            rows, shaped(theta, *shape), target, variant,
            gamma=config.gamma, kind=config.loss, delta=config.huber_delta,
        )  # fmt: skip
        gradient, norm = clipped(flat(gradient), config.max_gradient_norm)
        theta = stepper.step(theta, gradient)
        losses.append(loss)
        norms.append(norm)
        errors.append(off)
    return theta, losses, norms, errors


def updates_are_plain_python_s(variant: str, **options) -> None:
    """Four updates in double precision against the oracle."""
    config = small(**options, updates=4)
    algorithm = algorithm_of(config, "float64")
    learner, replay = learner_of(algorithm, "float64"), filled(algorithm)
    batches = jax.jit(algorithm.sample, static_argnums=3)(replay, KEY, BETA, 4)
    theta, losses, norms, errors = plain_updates(config, learner, batches, variant)
    after, _, report = jax.jit(algorithm.learn)(learner, replay, KEY, BETA)
    np.testing.assert_allclose(after.weights, theta, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(report.loss[:, 0], losses, rtol=1e-10)
    np.testing.assert_allclose(report.gradient_norm[:, 0], norms, rtol=1e-10)
    np.testing.assert_allclose(report.td_error[:, 0], np.mean(errors, 1), rtol=1e-10)


# --- known values --------------------------------------------------------------------------------


def a_time_limit_is_no_end() -> None:
    """Paid for ever, the chain is worth 1/(1−γ), though episodes are cut after 20 steps."""
    found = compiled_q(FOREVER, learning_rate=0.2, steps=25_600)
    np.testing.assert_allclose(found, FOREVER.optimal_q(GAMMA), atol=0.2)


def the_successor_is_the_true_one() -> None:
    """Cut after every second step, the chain has the values that it has uncut."""
    chain = Chain(max_steps=2)
    np.testing.assert_allclose(compiled_q(chain), chain.optimal_q(GAMMA), atol=0.02)


# --- experience ----------------------------------------------------------------------------------

NATIVE = DQN(
    env="CartPole-v1", mode="hosted", vectorization="native", envs=3, hidden=(4,), steps=600,
    train_every=30, learning_starts=10_000, buffer_size=600, explore_start=1.0, explore_end=1.0,
)  # fmt: skip


def only_experience_is_stored(config: DQN = NATIVE, change=lambda trainer: None) -> None:
    """Every row of the buffer obeys the laws of motion, and there are as many as real steps."""
    trainer, real = make(config), 0
    change(trainer.agent)
    try:
        collect = trainer.agent.envs.collect

        def counted(*args, **options):
            nonlocal real
            block = collect(*args, **options)
            real += int(block.valid.sum())
            return block

        trainer.agent.envs.collect = counted
        while trainer.step < trainer.total:
            trainer.advance(Clock())
        ring, handle = trainer.agent.replay, trainer.agent.algorithm.replay
        rows = {k: np.asarray(v) for k, v in handle.gather(ring, np.arange(int(ring.size))).items()}
    finally:
        trainer.close()
    assert real < config.steps  # there were fillers
    assert len(rows["reward"]) == real
    np.testing.assert_allclose(rows["next_obs"], moved(rows["obs"], rows["action"]), atol=1e-5)
    assert rows["terminated"].any()


def moved(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """CartPole's next observations, by Gymnasium's own plain environment."""
    import gymnasium

    env = gymnasium.make("CartPole-v1").unwrapped
    after = []
    for state, push in zip(obs, action, strict=True):
        env.reset()
        env.state = np.asarray(state, np.float64)
        after.append(env.step(int(push))[0])
    env.close()
    return np.array(after)


# --- exploration ---------------------------------------------------------------------------------


def each_env_throws_its_own_coin(exploration: str = "epsilon") -> None:
    """Two envs that see the same values choose independently of one another, by the right law."""
    program = CompiledDQN(algorithm_of(replace(small(), exploration=exploration)), None, None)
    values = jnp.array([[0.0, 1.0, 0.5]] * 2)
    level = {"epsilon": 0.5, "boltzmann": 0.7}[exploration]

    @jax.jit
    def draw(key):
        noise = program.noise(key, (4000, 2))
        step = lambda noise: program.choose(values, noise, level)  # noqa: E731
        return jax.lax.map(step, noise)

    actions = np.asarray(draw(jax.random.key(11)))
    weights = np.exp(np.array([0.0, 1.0, 0.5]) / 0.7)
    law = {"epsilon": np.array([1, 4, 1]) / 6, "boltzmann": weights / weights.sum()}[exploration]
    for column in actions.T:
        counts = np.bincount(column, minlength=3)
        assert stats.chisquare(counts, law * 4000).pvalue > 1e-3
    table = np.zeros((3, 3))
    np.add.at(table, tuple(actions.T), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3
