"""The rollout buffer of on-policy methods."""
