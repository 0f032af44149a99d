"""The suite `ppo_training`: PPO against peers in steps a second, and how soon it solves."""
