"""Judging samplers by the law of what they draw, because a random draw has no one right answer."""
