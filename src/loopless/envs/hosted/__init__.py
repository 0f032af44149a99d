"""Gymnasium environments, stepped on the host."""
