"""Which environments are compiled, and what asking for one loads."""

import subprocess
import sys

import pytest

import loopless.envs
from loopless.envs import EnvError, compiled_ids, make_compiled


def test_every_compiled_id_is_made_and_says_what_it_is():
    assert "CartPole-v1" in compiled_ids()
    for env_id in compiled_ids():
        env = make_compiled(env_id)
        assert env.max_steps > 0
        assert hash(env) == hash(make_compiled(env_id))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "loopless/Masked-v0"])
def test_options_change_fields(env_id):
    env = make_compiled(env_id, max_steps=7)
    assert env.max_steps == 7
    assert hash(env) == hash(make_compiled(env_id, max_steps=7)) != hash(make_compiled(env_id))


def test_an_unknown_id_gets_the_nearest_and_the_other_mode():
    with pytest.raises(EnvError, match=r"Did you mean CartPole-v1\?.*hosted mode"):
        make_compiled("cartpole-v0")


def test_an_unknown_option_gets_the_known_ones():
    with pytest.raises(EnvError, match=r"unexpected keyword argument 'lenght'.*length, max_steps"):
        make_compiled("loopless/Chain-v0", lenght=3)


def test_every_exported_name_exists():
    for name in loopless.envs.__all__:
        assert getattr(loopless.envs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = loopless.envs.nonsense


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import loopless.envs as e; e.compiled_ids(); e.VectorStep",
            ["jax", "gymnasium", "numpy"],
        ),
        (
            "import loopless.envs as e; e.HostedEnvs('loopless/Pixels-v0', 2).step([0, 1])",
            ["jax", "torch"],
        ),
        ("import loopless.envs as e; e.autoreset(e.make_compiled('CartPole-v1'))", ["gymnasium"]),
        ("import loopless.envs.hosted.workers", ["jax", "numba", "torch"]),
    ],
    ids=["asking", "hosted", "compiled", "worker"],
)
def test_a_mode_loads_only_what_it_needs(code, absent):
    code += f"; import sys; print([m for m in {absent} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr
