"""Where a buffer's data lie: in memory, in memory-mapped files with a journal, in one saved file."""
