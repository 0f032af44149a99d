"""Hosted runs of DQN: the same bytes for the same seed; a resume restores all but environments."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from dqn_cases import algorithm_of, arrays_of, assert_near, small, transitions
from run_results import TINY, checkpoint_files, events, go, resume, rows, train, trainer_of

from loopless.envs import EnvError
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import EnvFailed
from loopless.runs.folder import RunFolder
from loopless.runs.progress.clock import Clock
from loopless.train.dqn.hosted import end_episodes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]

HOSTED = replace(TINY, mode="hosted", env="loopless/Chain-v0", prioritized="exact", n_step=3)


@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"vectorization": "async"}], ids=str)
def test_the_same_seed_gives_the_same_bytes_and_rows(options, tmp_path):
    config = replace(HOSTED, **options)
    first, second = (train(tmp_path, config, name) for name in ("first", "second"))
    assert checkpoint_files(first) == checkpoint_files(second)
    assert rows(first) == rows(second)


def test_sync_and_async_are_the_same_run(tmp_path):
    sync = train(tmp_path, HOSTED, "sync")
    workers = train(tmp_path, replace(HOSTED, vectorization="async"), "async")
    assert rows(sync) == rows(workers)


def test_overlap_acts_by_weights_one_event_old(tmp_path):
    """The last update of an event is not yet known to the actions of the next one."""
    trainer = trainer_of(replace(HOSTED, overlap=True, n_step=1, prioritized="off"))
    seen, learned = [], [np.asarray(trainer.learner.weights)]
    collect = trainer.agent._collect

    def watched(*args):
        seen.append(trainer.agent.policy.weights.copy())
        return collect(*args)

    trainer.agent._collect = watched
    trainer.chunks = trainer.chunks._replace(size=1)
    while trainer.step < trainer.total:
        trainer.advance(Clock())
        learned.append(np.asarray(trainer.learner.weights))
    trainer.close()
    for number in range(1, len(seen)):
        np.testing.assert_array_equal(seen[number], learned[number - 1])
    assert not np.array_equal(learned[-1], learned[-2])


def test_events_of_one_call_are_those_of_several(tmp_path):
    """What a call of three events makes of a block, three calls make of its thirds."""
    config = replace(HOSTED, overlap=True, overlap_events=3)
    agent = trainer_of(config).agent
    try:
        whole, part = agent.blocks[3][0], agent.blocks[1][0]
        block = agent._collect(0, whole.block, Clock())
        whole.own["number"][...] = range(60, 63)
        whole.own["key"][...] = np.arange(6).reshape(3, 2)
        state = jax.tree.map(np.array, agent.state)
        found, reports = agent._calls[3, True](state, agent.settings, whole.words)
        expected, told = jax.tree.map(np.array, agent.state), []
        for i in range(3):
            cut = slice(i * agent.steps, (i + 1) * agent.steps)
            for name, rows in block.arrays().items():
                more = name.startswith("all_")
                getattr(part.block, name)[...] = rows[cut.start : cut.stop + more]
            for name, x in whole.own.items():
                part.own[name][...] = x[i]
            expected, report = agent._calls[1, True](expected, agent.settings, part.words)
            told.append(np.asarray(report))
    finally:
        agent.envs.close()
    assert_near(*(trees.flatten({"carry": x}) for x in (found, expected)), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(reports, told, rtol=1e-5, atol=1e-6)


def test_updates_one_by_one_train_the_same_agent(tmp_path):
    paths = [
        train(tmp_path, replace(HOSTED, update=update, steps=160), update)
        for update in ("fused", "loop")
    ]
    assert_near(*(Checkpoints(path).load().arrays for path in paths), rtol=1e-5, atol=1e-6)


def test_a_resume_restores_all_but_the_environments_and_says_so(tmp_path):
    path = train(tmp_path, HOSTED, "mine", dies_after=200)
    saved = Checkpoints(path).load().arrays
    trainer = trainer_of(HOSTED)
    try:
        words = trainer.restore(Checkpoints(path).load(template=trainer.arrays()))
        restored = dict(trainer.arrays())
        assert trainer.step == 160
    finally:
        trainer.close()
    assert "environments cannot be saved" in words
    assert "policy" in saved
    changed = [name for name in saved if not np.array_equal(saved[name], restored[name])]
    assert changed == ["replay/ring/packed"]  # the newest rows are marked as cut
    resume(path)
    log = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    (mark,) = [row for row in log if row.get("event") == "resume"]
    assert (mark["step"], mark["message"]) == (160, words)
    assert events(path)[-1] == (400, "end")
    assert [row["step"] for row in rows(path) if row["kind"] == "train"] == list(range(40, 401, 40))


# --- windows of n steps do not cross a restart ---------------------------------------------------


@pytest.mark.parametrize("written", [4, 6, 8, 14, 16])
@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("prioritized", ["off", "exact"])
def test_no_window_crosses_a_cut(prioritized, envs, written):
    config = replace(
        small(n_step=3, prioritized=prioritized), envs=envs, buffer_size=8, batch_size=2
    )
    algorithm = algorithm_of(config)
    none = np.zeros(written, bool)
    rows = transitions(written, terminated=none, truncated=none)
    rows.pop("next_action")
    replay = algorithm.replay.add(algorithm.replay.init(), rows)
    before = arrays_of(replay)
    replay = jax.jit(lambda replay: end_episodes(algorithm, replay))(replay)
    after = arrays_of(replay)
    packed = next(name for name in after if name.endswith(".packed"))
    assert all(np.array_equal(before[name], after[name]) for name in after if name != packed)
    # What comes next belongs to other episodes.
    more = {name: array[: 2 * envs] for name, array in rows.items()}
    replay = algorithm.replay.add(replay, more)
    ring = getattr(replay, "ring", replay)
    newest_before = (int(ring.head) - 2 * envs - envs + np.arange(envs)) % 8
    discounts = algorithm.replay.gather(replay, newest_before)["discount"]
    np.testing.assert_allclose(discounts, 0.9)
    if written > 2 * envs:
        earlier = (newest_before - envs) % 8
        np.testing.assert_allclose(
            algorithm.replay.gather(replay, earlier)["discount"], 0.9**2, rtol=1e-6
        )


def test_without_the_cut_a_window_would_cross():
    algorithm = algorithm_of(replace(small(n_step=3), buffer_size=8, batch_size=2))
    none = np.zeros(6, bool)
    rows = transitions(6, terminated=none, truncated=none)
    rows.pop("next_action")
    replay = algorithm.replay.add(algorithm.replay.init(), rows)
    np.testing.assert_allclose(algorithm.replay.gather(replay, [3])["discount"], 0.9**3, rtol=1e-6)


def test_a_cut_of_an_empty_buffer_changes_nothing():
    algorithm = algorithm_of(small(n_step=3))
    empty = algorithm.replay.init()
    after = end_episodes(algorithm, empty)
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(empty), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- environments that fail ----------------------------------------------------------------------


def fail_at(trainer, event: int, error: Exception):
    """Raise it where the environments are stepped, in that event."""
    collect = trainer.agent.envs.collect
    calls = iter(range(10**9))

    def failing(*args, **options):
        if next(calls) == event:
            raise error
        return collect(*args, **options)

    trainer.agent.envs.collect = failing


def failed_run(tmp_path, error):
    trainer = trainer_of(HOSTED)
    fail_at(trainer, 33, error)  # amid a chunk: events 30 to 35
    made = RunFolder.create(tmp_path, "mine", "dqn", HOSTED)
    with made as run, pytest.raises((EnvFailed, OSError)) as raised:
        go(trainer, run, HOSTED, None, None)
    return tmp_path / "mine", raised


def test_what_was_learned_before_an_environment_failed_is_saved(tmp_path):
    path, raised = failed_run(tmp_path, EnvError("envs: it fell off the table."))
    assert raised.type is EnvFailed
    assert raised.value.exit_code == 70
    assert "it fell off the table" in str(raised.value)
    assert "Saved at step 264" in str(raised.value)
    assert Checkpoints(path).load().step == 264
    assert events(path)[-1] == (264, "error")
    resume(path)
    assert Checkpoints(path).load().step == 400


def test_an_error_of_an_environment_keeps_its_traceback_and_loses_nothing(tmp_path):
    path, raised = failed_run(tmp_path, OSError("out of paper"))
    assert raised.type is OSError
    assert Checkpoints(path).load().step == 264
