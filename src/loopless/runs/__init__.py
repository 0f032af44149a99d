"""What every trainer shares: config, run folder, metrics, checkpoints, signals, progress, plots.

Nothing is imported here: `loopless train NAME --help` reads a config and loads no array library.
"""
