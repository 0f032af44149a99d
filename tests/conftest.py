"""Make the settings that must precede the import of libraries, and load hypothesis's profile."""

import gc
import os
import shutil
import signal
import tempfile

gc.disable()  # while modules are imported and tests collected: nothing of that is garbage

# A shell without job control starts background processes with Ctrl-C ignored, and their children
# inherit that: a child that a test interrupts would never end.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Two devices, because a program with several agents spreads them over devices. Most of what a test
# waits for is XLA's compiler, so that it optimizes little: no result is another one for that. The
# last two are what `loopless train` sets, so that all processes of the tests ask for the same
# programs and share them.
FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_enable_concurrency_optimized_scheduler=false",
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=131072",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
os.environ.setdefault("TRITON_INTERPRET", "1")  # no GPU is needed to run the Triton kernel's logic
# Tests run in several processes side by side; by default each would use every core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# One cache of compiled XLA programs for all workers of this run and for the processes that tests
# start. It is empty at the start and removed at the end: the workers inherit the variable.
programs = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp("-programs")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", programs or "")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "loopless",
    deadline=None,  # the first call of a kernel compiles it
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("loopless")


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap():
    """What outlives a module is left out of later collections: the heap has millions of objects."""
    yield
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    if programs is not None:
        shutil.rmtree(programs, ignore_errors=True)
