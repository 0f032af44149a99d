"""Where a buffer's data lie: in memory, in mapped files with a journal, or in one saved file."""
