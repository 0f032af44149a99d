"""Environments that return what they must not, raise, or hang: refused at any step, in words."""

import threading

import gymnasium
import numpy as np
import pytest
from support.scripted_envs import WRONG

from loopless.envs import EnvError, EnvFault, HostedEnvs

MODES = ["sync", pytest.param("async", marks=pytest.mark.slow)]


def zeros(envs):
    return lambda obs: np.zeros(envs, int)


def collect(env_id, steps=5, vectorization="sync", envs=2, **options):
    workers = {"workers": 1} if vectorization == "async" else {}
    with HostedEnvs(env_id, envs, vectorization=vectorization, **workers, **options) as world:
        return world.collect(zeros(envs), steps), world


@pytest.mark.parametrize("how", WRONG)
def test_what_a_later_step_must_not_return_is_refused_with_environment_and_step(how):
    words = r"tests/Bad-v0: environment 0 gave at its step 3, .*(expected|says|holds|array)"
    with pytest.raises(EnvFault, match=words) as caught:
        collect("tests/Bad-v0", env_kwargs={"how": how, "at": 3})
    assert caught.value.exit_code == 70


@pytest.mark.slow
@pytest.mark.parametrize("how", ["an observation of one number", "a flag as text"])
def test_a_worker_refuses_in_the_same_words(how):
    messages = []
    for mode in ("sync", "async"):
        with pytest.raises(EnvFault) as caught:
            collect("tests/Bad-v0", vectorization=mode, env_kwargs={"how": how, "at": 3})
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("numbers", "dtype"), [((-1.0, 300.7), "float64"), ((1, 300), "int64"), ((0, 300), "list")]
)
def test_bytes_are_never_wrapped(numbers, dtype):
    with pytest.raises(EnvFault, match=r"environment 0 gave .* its observation_space holds uint8"):
        collect("tests/Bytes-v0", env_kwargs={"numbers": numbers, "dtype": dtype})


@pytest.mark.parametrize("dtype", ["uint8", "bool", "list"])
def test_what_is_bytes_without_a_loss_is_taken(dtype):
    block, _ = collect("tests/Bytes-v0", env_kwargs={"numbers": (1, 0), "dtype": dtype})
    assert (block.next_obs == [1, 0]).all()


class Loose(gymnasium.Env):
    """Observations, rewards and flags of many types that all mean what they should."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    KINDS = (
        (np.ones(2, np.float32), 1.0, False, True),
        (np.ones(2), np.float32(1), np.False_, np.True_),
        ([1.0, 1.0], 1, 0, 1),
        (np.ones(2, np.int64), np.array(1.0), np.array(False), np.array(1)),
        ((1, True), True, 0.0, 1.0),
    )

    def reset(self, *, seed=None, options=None):
        self.count = getattr(self, "count", -1) + 1
        return self.KINDS[self.count % 5][0], {}

    def step(self, action):
        return *self.KINDS[self.count % 5], {}


gymnasium.register("tests/Loose-v0", Loose)


def test_numbers_and_flags_of_other_types_are_taken():
    block, _ = collect("tests/Loose-v0", steps=10)
    assert (block.all_obs == 1).all()
    assert (block.reward == 1).all()
    assert block.truncated.all()
    assert not block.terminated.any()


@pytest.mark.parametrize("obs", [5, -1, 1.0, "1", np.zeros(1, int)])
def test_a_discrete_observation_outside_its_space_is_refused(obs):
    spaces = gymnasium.spaces
    kwargs = {"observation_space": spaces.Discrete(3, start=1), "action_space": spaces.Discrete(2)}
    with pytest.raises(EnvFault, match="has the integers from 1 to 3"):
        collect("tests/Spaces-v0", env_kwargs=kwargs | {"obs": obs})


class Wrong(gymnasium.vector.VectorEnv):
    """A vector environment whose steps return `returned` in place of what they should."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs = 3
    single_observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, **returned):
        self.returned = returned

    def reset(self, *, seed=None, options=None):
        return np.zeros((3, 2), np.float32), {}

    def step(self, actions):
        step = {"obs": np.zeros((3, 2), np.float32), "reward": np.zeros(3)}
        step |= {"terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)}
        return *(step | self.returned).values(), {}


@pytest.mark.parametrize(
    "returned",
    [
        {"obs": np.zeros((1, 2), np.float32)},
        {"obs": np.zeros((3, 2), complex)},
        {"reward": 1.0},
        {"reward": np.array(["1"] * 3)},
        {"terminated": np.array(["False"] * 3)},
        {"truncated": False},
    ],
)
def test_a_vector_environment_is_checked_too(returned):
    with (
        HostedEnvs.around(Wrong(**returned)) as world,
        pytest.raises(EnvFault, match="the environments gave at step 0"),
    ):
        world.collect(zeros(3), 2)


def test_numbers_outside_the_space_are_counted_and_told_once():
    kwargs = {"how": "observation", "at": 3, "number": 7.5}
    block, world = collect("tests/Bad-v0", steps=5, env_kwargs=kwargs)
    assert world.outside == 2
    assert world.first_outside == (
        "envs: tests/Bad-v0: environment 0 gave 7.5 as number 1 of its observation at its step 3; "
        "its observation_space says from -1 to 1. Such numbers are counted, and used as they are."
    )
    assert (block.next_obs[3] == [0, 7.5]).all()


@pytest.mark.parametrize("mode", MODES)
def test_what_an_environment_raises_comes_with_its_own_traceback_first(mode):
    with pytest.raises(EnvFault) as caught:
        collect("tests/Bad-v0", vectorization=mode, env_kwargs={"how": "raise", "at": 2})
    first, *_, error, last = str(caught.value).splitlines()
    assert first == "Traceback (most recent call last):"
    assert "hosted/" not in str(caught.value)
    assert error == "OSError: the simulator is out of paper"
    assert last == (
        "envs: tests/Bad-v0: environment 0 raised OSError at its step 2, counted from 0. Correct "
        "the environment."
    )


def test_a_step_of_four_values_is_a_fault_of_the_environment():
    with pytest.raises(EnvFault, match=r"not enough values(?s:.*)environment 0 raised ValueError"):
        collect("tests/Bad-v0", env_kwargs={"how": "four"})


def test_a_constructor_that_raises_is_a_fault_of_the_environment():
    with pytest.raises(EnvFault, match=r"(?s:^Traceback.*)raised TypeError when it was made"):
        collect("tests/Refusing-v0", envs=1)


class Refusing(gymnasium.Env):
    def __init__(self):
        raise TypeError("no license")


gymnasium.register("tests/Refusing-v0", Refusing)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["sleep", "loop"])
def test_an_environment_that_hangs_is_named_with_the_place_where_it_hung(mode, how):
    words = r"(?s:^Traceback.*scripted_envs.py.*)environment 0 did not answer within 0.2 s at its"
    kwargs = {"how": how, "at": 2}
    with pytest.raises(EnvFault, match=words):
        collect("tests/Bad-v0", vectorization=mode, step_timeout=0.2, env_kwargs=kwargs)


def test_a_limit_that_is_kept_changes_nothing():
    plain, _ = collect("CartPole-v1", 40)
    limited, _ = collect("CartPole-v1", 40, step_timeout=30.0)
    np.testing.assert_array_equal(plain.all_obs, limited.all_obs)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_positive_time(seconds):
    with pytest.raises(EnvError, match="step_timeout must be positive seconds"):
        HostedEnvs("CartPole-v1", 1, step_timeout=seconds)


def test_a_limit_in_another_thread_is_refused():
    errors = []

    def make():
        try:
            HostedEnvs("CartPole-v1", 1, step_timeout=1.0)
        except EnvError as error:
            errors.append(str(error))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert "only the main thread receives" in errors[0]
