"""Where a buffer's data lies: in memory, in memory-mapped files, or in one saved file."""
