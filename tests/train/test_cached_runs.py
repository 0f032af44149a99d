"""Runs whose programs come from the disk: the same bits as runs that compile them."""

import jax
import pytest
from run_results import TINY, checkpoint_files, command, flags

from loopless.arrays import programs
from loopless.files import cache

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("commands")]


@pytest.fixture
def our_cache(tmp_path, monkeypatch):
    """A cache of ours in place of the one that all tests share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared, state = jax.config.jax_compilation_cache_dir, programs._install(None)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", shared)
    programs._set(state)


@pytest.mark.usefixtures("our_cache")
def test_loaded_programs_train_and_resume_to_the_same_bits(run, tmp_path):
    hits: list[str] = []

    def listen(name, **_):
        hits.extend([name] if name.endswith("cache_hits") else [])

    def train(name, steps):
        jax.clear_caches()  # as in a process of its own
        hits.clear()
        words = flags(TINY, runs=tmp_path, run=name, steps=steps)
        assert command("train", "dqn", *words) == 0
        return tmp_path / name

    jax.monitoring.register_event_listener(listen)
    try:
        train("fills", 160)
        stored = len(cache.entries(cache.root()))
        assert stored > 5
        loaded = train("loads", TINY.steps)
        assert len(hits) >= stored - 1  # all but the trial program of the cache
        assert checkpoint_files(loaded) == checkpoint_files(run)
        assert command("resume", tmp_path / "fills", "--steps", TINY.steps) == 0
        newest = {n: x for n, x in checkpoint_files(tmp_path / "fills").items() if "400" in str(n)}
        want = {n: x for n, x in checkpoint_files(run).items() if "400" in str(n)}
        assert newest == want != {}
    finally:
        jax.monitoring.unregister_event_listener(listen)
