"""The episodic buffer: whole episodes, drawn from at geometric distances."""
