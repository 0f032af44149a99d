"""The suites by name: each can be loaded, and shows itself."""

import pytest

from loopless.bench.suites import UnknownSuite, layout, load, names


@pytest.mark.parametrize("name", names())
def test_every_suite_runs_and_has_a_layout(name):
    assert callable(load(name))
    assert layout(name).TITLES
    assert callable(layout(name).rendered)


@pytest.mark.parametrize(
    ("name", "hint"), [("retruns", "'returns'"), ("xyz", "There are: returns")]
)
def test_an_unknown_name_gets_a_hint(name, hint):
    with pytest.raises(UnknownSuite, match=hint):
        load(name)
