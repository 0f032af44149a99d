"""Settings that must stand before the libraries are imported, and hypothesis' profile."""

import os
import signal

# A shell without job control starts what runs in the background with Ctrl-C ignored, and children
# inherit that: those that a test interrupts would never end.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Several agents of one program are spread over devices.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
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
