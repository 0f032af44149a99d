"""Reinforcement-learning hot paths with no Python loop in them, checked against the loop they replace."""

__version__ = "0.1.0"
