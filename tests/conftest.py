"""Settings that must stand before the libraries are imported, and hypothesis' profile."""

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TRITON_INTERPRET", "1")  # no GPU is needed to run the Triton kernel's logic
# Tests run in several processes side by side; each library alone would take every core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "loopless",
    deadline=None,  # the first call of a kernel compiles it
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("loopless")
