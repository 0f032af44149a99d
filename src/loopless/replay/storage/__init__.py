"""Where a buffer's data are: in memory, in mapped files with a journal, or in one saved file."""
