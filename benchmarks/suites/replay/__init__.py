"""The suite `replay`: buffers against loops, peers, and what the founding note proposed."""
