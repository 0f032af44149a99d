"""A block in one memory: the arrays that a compiled call unpacks are those of the host."""

import jax
import numpy as np
import pytest

from loopless.envs import HostedEnvs
from loopless.envs.hosted.blocks import Transfer

OWN = {"number": ((), "int32"), "key": ((2,), "uint32"), "flags": ((3,), "bool")}
NAMES = ("obs", "all_obs", "next_obs", "action", "reward", "terminated", "truncated", "valid")


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "loopless/Pixels-v0", "Pendulum-v1", "loopless/Masked-v0"]
)
def test_what_is_unpacked_is_what_was_collected(env):
    random = np.random.default_rng(0)
    with HostedEnvs(env, 3, seed=1) as envs:
        transfer = Transfer(envs, 40, OWN)
        space = envs.action_space

        def policy(obs):
            if space.dtype == "float32":
                return random.uniform(-1, 1, (3, *space.shape)).astype(np.float32)
            return random.integers(0, space.n, 3)

        block = envs.collect(policy, 40, out=transfer.block)
        transfer.own["number"][...] = 7
        transfer.own["key"][...] = 1, 2**32 - 1
        transfer.own["flags"][...] = True, False, True
        unpacked = jax.jit(transfer.unpack)(transfer.words)
        names = NAMES if envs.mask is None else (*NAMES, "all_masks")
        assert ("all_masks" in names) == (env == "loopless/Masked-v0")
        for name in names:
            np.testing.assert_array_equal(unpacked[name], getattr(block, name), err_msg=name)
            assert unpacked[name].dtype == getattr(block, name).dtype
        assert unpacked["number"] == 7
        np.testing.assert_array_equal(unpacked["key"], [1, 2**32 - 1])
        np.testing.assert_array_equal(unpacked["flags"], [True, False, True])
        assert env == "Pendulum-v1" or (block.terminated | block.truncated).any()


def test_the_block_is_collected_like_any_other():
    def policy(obs):
        return (obs[:, 2] > 0).astype(np.int64)

    with HostedEnvs("CartPole-v1", 2, seed=3) as one, HostedEnvs("CartPole-v1", 2, seed=3) as two:
        plain, packed = (
            one.collect(policy, 60),
            two.collect(policy, 60, out=Transfer(two, 60).block),
        )
        for name, array in plain.arrays().items():
            np.testing.assert_array_equal(getattr(packed, name), array, err_msg=name)
