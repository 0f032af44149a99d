"""Play with what `loopless export` wrote: NumPy is all that the policy needs.

The file holds plain arrays, and the card beside it says in words how to act by them, for a robot
that has no Python either. Gymnasium is here for the environment.

    loopless export runs/dqn-CartPole-v1-0
    python examples/use_exported_policy.py runs/dqn-CartPole-v1-0/policy.safetensors
"""

import argparse

import gymnasium
import numpy as np

import loopless


def main(arguments: list[str] | None = None) -> list[float]:
    """Play, and return the returns of the episodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", help="the file of an export, or the folder of a run")
    parser.add_argument("--env", help="another id than the card's")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)

    policy = loopless.load_policy(args.policy)
    env, returns = gymnasium.make(args.env or policy.card["env"]), []
    for episode in range(args.episodes):
        observation, _ = env.reset(seed=args.seed + episode)
        policy.reset()  # a recurrent policy forgets the episode before
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    print(f"{np.mean(returns):.2f} ± {np.std(returns):.2f} over {args.episodes} episodes")
    return returns


if __name__ == "__main__":
    main()
