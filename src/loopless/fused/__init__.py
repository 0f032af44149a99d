"""Your own PyTorch modules: K updates in one compiled call, and acting from their memory.

`fuse` is in `step.py`. A call goes: `stages.py` (what was given to `fuse`), `calls.py` (the
arguments, and through `reads.py` what a loss reads besides them), `capture.py` (a loss and its
gradients as a graph; `tracing.py` and `lowering.py` turn it into JAX), `assemble.py` and
`program.py` (the compiled scan), `plan.py` and `memory.py` (what every later call pays).
"""
