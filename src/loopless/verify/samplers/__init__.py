"""Judge samplers by the law of their draws, because a random draw has no single right answer."""
