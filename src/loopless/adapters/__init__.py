"""Thin classes for code bases that exist: Stable-Baselines3 in `sb3/`, an estimator for verl."""
