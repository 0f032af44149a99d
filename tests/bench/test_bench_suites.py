"""The suites by name: each can be loaded, and shows itself."""

import pytest

from loopless.bench.suites import UnknownSuite, find, load, names


@pytest.mark.parametrize("name", names())
def test_every_suite_runs_and_has_a_layout(name):
    suite = find(name)
    assert callable(suite.run)
    assert suite.titles
    assert callable(load(name).page)


@pytest.mark.parametrize(
    ("name", "hint"), [("retruns", "'returns'"), ("xyz", "There are: returns")]
)
def test_an_unknown_name_gets_a_hint(name, hint):
    with pytest.raises(UnknownSuite, match=hint):
        load(name)
