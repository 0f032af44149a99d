"""The progress of a run, shown on a terminal or as plain lines."""
