"""The cases, peers and timing behind `loopless bench`; importing this imports no array library."""
