"""Pure functions of arrays, each with its loop twin of the same name in `reference/`."""
