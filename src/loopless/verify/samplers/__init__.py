"""Judging samplers by the law of what they draw."""
