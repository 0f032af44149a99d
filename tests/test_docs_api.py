"""The API pages: every public name has an entry, and every entry is of a public name."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from site_pages import api

ROOT = Path(__file__).parent.parent
PUBLIC = (
    "loopless",
    "loopless.replay",
    "loopless.replay.device",
    "loopless.envs",
    "loopless.verify",
)
ENTRIES = [
    name
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for name in re.findall(r"<!-- make:(loopless\.\S+) -->", page.read_text())
]


def missing(module, entries):
    """Public names of a module without an entry, under any of the names they can be had by."""
    home, shown = import_module(module), {id(api.find(entry)) for entry in entries}
    return [name for name in home.__all__ if id(getattr(home, name)) not in shown]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_an_entry(module):
    assert missing(module, ENTRIES) == []


def test_a_missing_entry_is_noticed():
    assert missing("loopless", set(ENTRIES) - {"loopless.gae"}) == ["gae"]


def test_no_name_has_two_entries():
    assert len({id(api.find(entry)) for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_can_be_written(entry):
    text = api.entry(entry)
    assert text.startswith(f'<a id="{entry}"></a>\n\n### {entry.rpartition(".")[2]}\n')
    assert text.strip().endswith(tuple(".)`>]:`"))


def test_an_entry_has_signature_and_docstring():
    text = api.entry("loopless.normalize")
    assert "normalize(x, valid=None, *, min_std=1e-08)" in text
    assert "Loop twin: `reference.returns.normalize`." in text


def test_a_class_has_its_own_members_before_its_bases():
    text = api.entry("loopless.PrioritizedReplayBuffer")
    assert text.index("#### update_priorities") < text.index("#### save")
    call = "sample(batch_size, batches=None, *, beta=0.4, newest=0, out=None, library='numpy')"
    assert call in text


def test_a_name_without_docstring_is_an_error():
    with pytest.raises(ValueError, match="has no docstring"):
        api.documented("some.name", lambda: None)
