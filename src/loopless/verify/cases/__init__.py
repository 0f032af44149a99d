"""Named test cases that tell right functions from wrong ones."""
