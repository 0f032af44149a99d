"""Other libraries' DQN with the same settings; each call makes one slice.

Stable-Baselines3 and SBX step Gymnasium's environments. rejax is compiled whole, as our compiled
mode is, and steps gymnax's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.slices import ENV, REJAX, Slice, Training
from suites.processes import jax, jnp, peer, warnings_of_peers_ignored
from suites.q_learning.peers import BASELINES, SBX, even_width
from suites.q_learning.updates import ACTIONS

LIBRARIES = {"stable_baselines3": (BASELINES, "stable-baselines3"), "sbx": (SBX, "sbx-rl")}


def options(case: Training) -> dict[str, Any]:
    """Return the settings of both libraries."""
    config = case.config()
    return {
        "env": ENV,
        "learning_rate": config.learning_rate,
        "gamma": config.gamma,
        "buffer_size": config.buffer_size,
        "learning_starts": config.learning_starts,
        "batch_size": config.batch_size,
        "train_freq": config.train_every,
        "gradient_steps": config.updates,
        "target_update_interval": config.target_every,
        "exploration_initial_eps": config.explore_start,
        "exploration_final_eps": config.explore_end,
        "device": "cpu",
        "seed": 0,
    }


def sliced(model: Any, case: Slice, first: int, counted: int = 1) -> Call:
    """Return a call of the model's `learn` that makes one slice, after `first` steps untimed.

    Where the library counts one update, it makes `counted` gradient steps.
    """
    model.learn(first)  # includes the first gradient step, and its compilation

    def run() -> int:
        before = model._n_updates
        model.learn(case.steps, reset_num_timesteps=False)
        return counted * (model._n_updates - before)

    return Call(run, int)


def dqn_model(module: str, case: Training) -> Any:
    """Return the DQN of a library; SBX has two layers of one width, and does not clip."""
    more: dict[str, Any] = {"policy_kwargs": {"net_arch": [even_width(*case.hidden)]}}
    if module != "sbx":
        more = {"policy_kwargs": {"net_arch": list(case.hidden)}}
        more["max_grad_norm"] = case.config().max_gradient_norm or float("inf")
    return peer(module).DQN("MlpPolicy", **more, **options(case))


def _dqn(module: str, case: Training) -> Call:
    return sliced(dqn_model(module, case), case, case.config().learning_starts + case.every)


def contenders(prepare: Callable[[str, Any], Call], *notes: str) -> tuple[Contender, ...]:
    """Return a contender for each library; prepare(module, case) makes its call."""
    return tuple(
        Contender(*LIBRARIES[module], "peer", partial(prepare, module), note=note)
        for module, note in zip(LIBRARIES, notes, strict=True)
    )


CONTENDERS = contenders(
    _dqn,
    "DQN.learn: with its monitor, its logger has no outputs",
    "DQN.learn: as Stable-Baselines3, no clipping, two layers of one width with as many products "
    "(its network has no others)",
)


class CompiledSlices:
    """A compiled run past its warm-up; a call makes a slice, and returns its gradient steps.

    `advance` is a pure function that makes the steps of a slice, and `count` returns the gradient
    steps that a state has behind it.
    """

    def __init__(self, state: Any, advance: Callable[[Any], Any], count: Callable[[Any], Any]):
        self.state, self.count = jax.tree.map(jnp.array, state), count  # no array is there twice
        self.advance = jax.jit(advance, donate_argnums=0)
        with warnings_of_peers_ignored():
            while not self():  # until a slice has learned
                pass

    def __call__(self) -> int:
        before = int(self.count(self.state))
        self.state = jax.block_until_ready(self.advance(self.state))
        return int(self.count(self.state)) - before


def rejax_algorithm(name: str, case: Slice, **settings: Any) -> Any:
    """Return an algorithm of rejax whose `train` makes one slice, and evaluates nothing."""
    settings |= {"env": ENV, "total_timesteps": case.steps, "eval_freq": case.steps}
    with warnings_of_peers_ignored():
        algorithm = getattr(peer("rejax"), name).create(skip_initial_evaluation=True, **settings)
    return algorithm.replace(eval_callback=lambda *_: ())


def rejax_slices(algorithm: Any, network: str) -> Call:
    """Return a call of `train`; the state of `network` counts the gradient steps."""
    with warnings_of_peers_ignored():
        state = jax.jit(algorithm.init_state)(jax.random.key(0))
    slices = CompiledSlices(
        state,
        lambda state: algorithm.train(train_state=state)[0],
        lambda state: getattr(state, network).step,
    )
    return Call(slices, int)


def _rejax(case: Training) -> Call:
    config, networks = case.config(), peer("rejax.networks")
    algorithm = rejax_algorithm(
        "DQN", case, num_envs=config.envs, num_epochs=config.updates, ddqn=config.double,
        buffer_size=config.buffer_size, fill_buffer=config.learning_starts,
        batch_size=config.batch_size, learning_rate=config.learning_rate, gamma=config.gamma,
        max_grad_norm=config.max_gradient_norm, eps_start=config.explore_start,
        eps_end=config.explore_end, target_update_freq=config.target_every, polyak=0.0,
    )  # fmt: skip
    make = networks.EpsilonGreedyPolicy(networks.DiscreteQNetwork)
    network = make(hidden_layer_sizes=case.hidden, action_dim=ACTIONS, activation=jax.nn.relu)
    return rejax_slices(algorithm.replace(agent=network), "q_ts")


COMPILED = Contender(
    REJAX, "rejax", "peer", _rejax,
    note="DQN.train on gymnax, jitted: squared loss, clips each gradient by its size",
)  # fmt: skip
