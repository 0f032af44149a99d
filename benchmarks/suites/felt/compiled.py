"""Solve CartPole with rejax, whose training is one compiled program.

    python compiled.py ppo 0

The settings are those of `sb3.py`, but for those that rejax does not have: its DQN makes one update
in two steps, of two environments, where the others make 128 in 256, and copies the target network
as often as they do. About 5,000 steps are trained at a time; then ten greedy episodes are played,
and the last line says whether they reached 475 on average, and when.
"""

import sys
from typing import Any

import jax
import rejax
from rejax.evaluate import evaluate
from rejax.networks import DiscreteQNetwork, EpsilonGreedyPolicy

name, seed = sys.argv[1], int(sys.argv[2])
if name == "ppo":
    algorithm = rejax.PPO.create(
        env="CartPole-v1", total_timesteps=5_120, eval_freq=5_120, num_envs=4, num_steps=128,
        num_epochs=4, num_minibatches=4, learning_rate=1e-3, gamma=0.99, gae_lambda=0.95,
        clip_eps=0.2, vf_coef=0.5, ent_coef=0.0, max_grad_norm=0.5, skip_initial_evaluation=True,
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
    )  # fmt: skip
else:
    algorithm = rejax.DQN.create(
        env="CartPole-v1", total_timesteps=5_000, eval_freq=5_000, num_envs=2, num_epochs=1,
        buffer_size=100_000, fill_buffer=1_000, batch_size=64, learning_rate=2.3e-3, gamma=0.99,
        target_update_freq=256, polyak=0.0, ddqn=False, skip_initial_evaluation=True,
        eps_end=0.04, exploration_fraction=8_000 / 5_000, max_grad_norm=10.0,
    )  # fmt: skip
    # Its `create` cannot be told the widths of the layers.
    make_policy: Any = EpsilonGreedyPolicy  # its annotation asks for a network, it takes a class
    policy = make_policy(DiscreteQNetwork)
    agent = policy(hidden_layer_sizes=(256, 256), action_dim=2, activation=jax.nn.relu)
    algorithm = algorithm.replace(agent=agent)


def judge(algorithm, state, key):
    """Play ten episodes; return how long and how good they were."""
    act = algorithm.make_act(state)
    return evaluate(act, key, algorithm.env, algorithm.env_params, 10, 500)


algorithm = algorithm.replace(eval_callback=judge)
state = jax.jit(algorithm.init_state)(jax.random.key(seed))
train = jax.jit(lambda state: algorithm.train(train_state=state))
for _ in range(60 if name == "ppo" else 20):
    state, (_, returns) = train(state)
    if returns[-1].mean() >= 475:
        print(f"solved {int(state.global_step)}", flush=True)
        break
else:
    print("not solved", flush=True)
