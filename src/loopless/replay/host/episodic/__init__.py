"""The episodic buffer: rows of many steps, and pairs of a step and a later one, drawn from them.

`buffer` is what a caller sees; `episodes` checks what is added, `arena` stores it, `draws` draws,
and `state` saves and restores.
"""
