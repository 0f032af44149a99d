"""Text as token ids: corpora, tokenizers, files of tokens, windows of them, and a baseline."""
