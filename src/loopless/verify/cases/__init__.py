"""The cases that a function is tried on: properties, and where their numbers come from."""
