"""The bench process takes its cores before any array library starts its threads."""

import os
import subprocess
import sys

import pytest

from loopless.bench.machine import THREAD_VARIABLES

CODE = """
import os, sys
{first}
from loopless.bench.machine import RESTARTED, THREAD_VARIABLES, cores, isolate
isolate(1)
print(cores(), *(os.environ[name] for name in THREAD_VARIABLES), RESTARTED in os.environ)
"""


def run(first):
    command = [sys.executable, "-c", CODE.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_one_thread_means_one_core_and_one_thread_everywhere():
    assert run("")[:-1] == ["1"] * (1 + len(THREAD_VARIABLES))


def test_a_process_that_has_numpy_already_restarts_itself_once():
    assert run("import numpy")[-1] == "True"
