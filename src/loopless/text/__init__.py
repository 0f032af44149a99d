"""Text as token ids: reading a corpus, tokenizing it, token files, training windows, a baseline."""
