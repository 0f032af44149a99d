"""Leave JAX's numbers to the slow lane: it compiles every operation for every shape.

The quick lane still tests that JAX's arrays are refused where they must be, which compiles nothing.
"""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    for item in items:
        refuses = re.search("refusals|bad_input", item.path.name) and "are_good" not in item.name
        in_jax = HERE in item.path.parents and re.search("jax", item.nodeid, re.IGNORECASE)
        if in_jax and not refuses:
            item.add_marker(pytest.mark.slow)
