"""The suite `ppo_learning`: PPO's presets over several seeds, and how well they end."""
