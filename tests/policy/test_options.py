"""Channel options: which are ours, what they may say, and what becomes of the others."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from grpc_backoff.errors import ConfigError, OptionError
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.options import OPTION_KEYS, read_options
from grpc_backoff.policy.presets import CONNECT, GRPC

INITIAL = "grpc.initial_reconnect_backoff_ms"
MAX = "grpc.max_reconnect_backoff_ms"
MIN = "grpc.min_reconnect_backoff_ms"
IDLE = "grpc.client_idle_timeout_ms"
FIXED = "grpc.testing.fixed_reconnect_backoff_ms"

MS = "a whole number of milliseconds from 1 to 2147483647 is"
IDLE_MS = "a whole number of milliseconds from 0 to 2147483647 (never) is"
JITTER = "a number from 0 to below 1 is"
MULTIPLIER = "a finite number of at least 1 is"
STABLE = "a finite number of seconds of at least 0 is"
FLAG = "True or False (or 1 or 0) is"
RECONNECT = "'lazy' or 'eager' is"
PATH = "the path of a file is"
PAIR = "a pair of a key and a value is"
ALL = (
    "no option has this name, choose from: grpc_backoff.preset, grpc.initial_reconnect_backoff_ms, "
    "grpc.max_reconnect_backoff_ms, grpc.min_reconnect_backoff_ms, grpc.client_idle_timeout_ms, "
    "grpc_backoff.multiplier, grpc_backoff.jitter, grpc_backoff.jitter_first, grpc_backoff.stable_after, "
    "grpc_backoff.reconnect, grpc_backoff.config"
)


class Unshowable:
    """A value whose repr raises."""

    def __repr__(self):
        raise RuntimeError("no")


def meant(key):
    return f"no option has this name, did you mean {key!r}?"


BAD_VALUES = [
    (INITIAL, 0, f"{INITIAL} = 0 is not allowed; {MS}"),
    (INITIAL, -1, f"{INITIAL} = -1 is not allowed; {MS}"),
    (INITIAL, 2**31, f"{INITIAL} = 2147483648 is not allowed; {MS}"),
    (INITIAL, 100.0, f"{INITIAL} = 100.0 is not allowed; {MS}"),
    (INITIAL, "100", f"{INITIAL} = '100' is not allowed; {MS}"),
    (INITIAL, True, f"{INITIAL} = True is not allowed; {MS}"),
    (INITIAL, None, f"{INITIAL} = None is not allowed; {MS}"),
    (INITIAL, 10**400, f"{INITIAL} = 1{'0' * 199}... is not allowed; {MS}"),
    (MAX, 0, f"{MAX} = 0 is not allowed; {MS}"),
    (MAX, math.nan, f"{MAX} = nan is not allowed; {MS}"),
    (MAX, b"5", f"{MAX} = b'5' is not allowed; {MS}"),
    (MIN, -20000, f"{MIN} = -20000 is not allowed; {MS}"),
    (MIN, math.inf, f"{MIN} = inf is not allowed; {MS}"),
    (FIXED, 0, f"{FIXED} = 0 is not allowed; {MS}"),
    (FIXED, "1s", f"{FIXED} = '1s' is not allowed; {MS}"),
    (IDLE, -1, f"{IDLE} = -1 is not allowed; {IDLE_MS}"),
    (IDLE, 2**31, f"{IDLE} = 2147483648 is not allowed; {IDLE_MS}"),
    (IDLE, 0.5, f"{IDLE} = 0.5 is not allowed; {IDLE_MS}"),
    ("grpc_backoff.multiplier", 0.99, f"grpc_backoff.multiplier = 0.99 is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.multiplier", math.inf, f"grpc_backoff.multiplier = inf is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.multiplier", math.nan, f"grpc_backoff.multiplier = nan is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.multiplier", "2", f"grpc_backoff.multiplier = '2' is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.multiplier", True, f"grpc_backoff.multiplier = True is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.multiplier", 10**5000, f"grpc_backoff.multiplier = <int> is not allowed; {MULTIPLIER}"),
    ("grpc_backoff.jitter", 1, f"grpc_backoff.jitter = 1 is not allowed; {JITTER}"),
    ("grpc_backoff.jitter", -0.1, f"grpc_backoff.jitter = -0.1 is not allowed; {JITTER}"),
    ("grpc_backoff.jitter", math.nan, f"grpc_backoff.jitter = nan is not allowed; {JITTER}"),
    ("grpc_backoff.jitter", False, f"grpc_backoff.jitter = False is not allowed; {JITTER}"),
    ("grpc_backoff.jitter", Unshowable(), f"grpc_backoff.jitter = <Unshowable> is not allowed; {JITTER}"),
    ("grpc_backoff.jitter_first", 2, f"grpc_backoff.jitter_first = 2 is not allowed; {FLAG}"),
    ("grpc_backoff.jitter_first", "yes", f"grpc_backoff.jitter_first = 'yes' is not allowed; {FLAG}"),
    ("grpc_backoff.jitter_first", 1.0, f"grpc_backoff.jitter_first = 1.0 is not allowed; {FLAG}"),
    ("grpc_backoff.stable_after", -1, f"grpc_backoff.stable_after = -1 is not allowed; {STABLE}"),
    ("grpc_backoff.stable_after", math.inf, f"grpc_backoff.stable_after = inf is not allowed; {STABLE}"),
    ("grpc_backoff.stable_after", "5s", f"grpc_backoff.stable_after = '5s' is not allowed; {STABLE}"),
    ("grpc_backoff.reconnect", "Lazy", f"grpc_backoff.reconnect = 'Lazy' is not allowed; {RECONNECT}"),
    ("grpc_backoff.reconnect", 1, f"grpc_backoff.reconnect = 1 is not allowed; {RECONNECT}"),
    ("grpc_backoff.preset", "gprc", "grpc_backoff.preset = 'gprc' is not allowed; 'grpc' is"),
    ("grpc_backoff.preset", None, "grpc_backoff.preset = None is not allowed; 'grpc' is"),
    ("grpc_backoff.config", "", f"grpc_backoff.config = '' is not allowed; {PATH}"),
    ("grpc_backoff.config", None, f"grpc_backoff.config = None is not allowed; {PATH}"),
    ("grpc_backoff.config", b"a.toml", f"grpc_backoff.config = b'a.toml' is not allowed; {PATH}"),
    ("grpc_backoff.multiplyer", 2, f"grpc_backoff.multiplyer = 2 is not allowed; {meant('grpc_backoff.multiplier')}"),
    ("grpc_backoff.Jitter", 0, f"grpc_backoff.Jitter = 0 is not allowed; {meant('grpc_backoff.jitter')}"),
    ("grpc_backoff.max_backoff", 5, f"grpc_backoff.max_backoff = 5 is not allowed; {meant(MAX)}"),
    ("grpc-backoff.jitter", 0, f"grpc-backoff.jitter = 0 is not allowed; {meant('grpc_backoff.jitter')}"),
    ("grpc_backoff_jitter", 0, f"grpc_backoff_jitter = 0 is not allowed; {meant('grpc_backoff.jitter')}"),
    ("GRPC_BACKOFF.PRESET", 0, f"GRPC_BACKOFF.PRESET = 0 is not allowed; {meant('grpc_backoff.preset')}"),
    ("grpcbackoff.reconect", 0, f"grpcbackoff.reconect = 0 is not allowed; {meant('grpc_backoff.reconnect')}"),
    ("grpc_backoff.", 0, f"grpc_backoff. = 0 is not allowed; {ALL}"),
    ("grpc_backoff.xyz", 0, f"grpc_backoff.xyz = 0 is not allowed; {ALL}"),
]

NO_PAIRS = [
    ("grpc.x", f"options[1] = 'grpc.x' is not allowed; {PAIR}"),
    (("grpc.x",), f"options[1] = ('grpc.x',) is not allowed; {PAIR}"),
    ((1, "x"), f"options[1] = (1, 'x') is not allowed; {PAIR}"),
    (None, f"options[1] = None is not allowed; {PAIR}"),
]


@pytest.mark.parametrize(("key", "value", "message"), BAD_VALUES, ids=[f"{row}" for row in range(len(BAD_VALUES))])
def test_bad_value(key, value, message):
    """CH-10: a bad option is a ValueError that names the key, the value and what is allowed."""
    with pytest.raises(ValueError) as caught:
        read_options([(key, value)])

    assert str(caught.value) == message
    assert (caught.value.key, caught.value.value) == (key, value)


@pytest.mark.parametrize(("entry", "message"), NO_PAIRS)
def test_no_pair(entry, message):
    """CH-10: what is no pair of a key and a value is told with its place among the options."""
    with pytest.raises(OptionError) as caught:
        read_options([("grpc.y", 1), entry])

    assert str(caught.value) == message


def test_max_below_initial():
    """CH-10: a maximum below the initial backoff, both given, is an error that names both."""
    with pytest.raises(OptionError) as caught:
        read_options([(INITIAL, 5000), (MAX, 4999)])

    assert str(caught.value) == f"{MAX} = 4999 is not allowed; at least {INITIAL} (5000) is"


def test_max_equals_initial():
    """CH-10: a maximum that equals the initial backoff is allowed."""
    policy, _ = read_options([(INITIAL, 5000), (MAX, 5000)])

    assert (policy.initial_backoff, policy.backoff.cap) == (5.0, 5.0)


def test_low_max_alone():
    """CH-9: a maximum below the default initial backoff lowers that with it, as in grpcio."""
    policy, _ = read_options([(MAX, 300)])

    assert (policy.initial_backoff, policy.backoff.cap) == (0.3, 0.3)


def test_high_initial_alone():
    """CH-9: an initial backoff above the default maximum is what was asked for, so it lifts the maximum."""
    policy, _ = read_options([(INITIAL, 300_000)])

    assert (policy.initial_backoff, policy.backoff.cap) == (300.0, 300.0)


def test_no_options():
    """CB-2: without options the policy is gRPC's."""
    policy, _ = read_options([])

    assert policy == CONNECT


def test_every_option():
    """CH-9: every option ends in its place, and milliseconds become seconds."""
    policy, _ = read_options(
        [
            (INITIAL, 250),
            (MAX, 8000),
            (MIN, 1500),
            (IDLE, 60_000),
            ("grpc_backoff.preset", "grpc"),
            ("grpc_backoff.multiplier", 3),
            ("grpc_backoff.jitter", 0.5),
            ("grpc_backoff.jitter_first", True),
            ("grpc_backoff.stable_after", 2),
            ("grpc_backoff.reconnect", "eager"),
        ]
    )

    assert policy == replace(
        CONNECT,
        backoff=BackoffPolicy(Exponential(0.25, 3.0), 8.0, Proportional(0.5)),
        min_connect_timeout=1.5,
        idle_timeout=60.0,
        jitter_first=True,
        stable_after=2.0,
        reconnect=Reconnect.EAGER,
    )


def test_no_floor():
    """CH-9: grpcio's floor of 100 ms does not hold here."""
    policy, _ = read_options([(INITIAL, 1), (MAX, 2), (MIN, 3)])

    assert (policy.initial_backoff, policy.backoff.cap, policy.min_connect_timeout) == (0.001, 0.002, 0.003)


def test_fixed_backoff():
    """CH-9: grpcio's key for a fixed backoff means what it means there: no growth, no jitter, one time for all."""
    policy, core = read_options([(INITIAL, 100), ("grpc_backoff.jitter", 0.5), (FIXED, 700)])

    assert policy.backoff == BackoffPolicy(Exponential(0.7, 1.0), 0.7, Proportional(0.0))
    assert policy.min_connect_timeout == 0.7
    assert FIXED not in dict(core)


@pytest.mark.parametrize("value", [True, 1])
def test_flag_spellings(value):
    """CH-9: grpc's options have no booleans, so 1 is as good as True."""
    policy, _ = read_options([("grpc_backoff.jitter_first", value)])

    assert policy.jitter_first is True


@pytest.mark.parametrize(("value", "seconds"), [(0, 1.0), (999, 1.0), (1001, 1.001), (2**31 - 1, math.inf)])
def test_idle_timeout(value, seconds):
    """CB-14: the idle timeout is at least a second, as in C-core, and the largest value is never."""
    policy, _ = read_options([(IDLE, value)])

    assert policy.idle_timeout == seconds


def test_first_wins():
    """CH-9: where a key stands twice the first wins, as in grpcio; the second is not even looked at."""
    policy, _ = read_options([(INITIAL, 100), (INITIAL, 900), (INITIAL, "?")])

    assert policy.initial_backoff == 0.1


def test_bytes_key():
    """CH-9: grpcio takes keys as bytes too, so they mean the same here."""
    policy, core = read_options([(INITIAL.encode(), 100), (b"grpc.x", 1)])

    assert policy.initial_backoff == 0.1
    assert core[0] == (b"grpc.x", 1)


def test_bytes_key_of_nobody():
    """CH-10: a key of ours is recognised in bytes as well."""
    with pytest.raises(OptionError, match=r"did you mean 'grpc_backoff\.jitter'"):
        read_options([(b"grpc_backoff.jiter", 0)])


def test_others_untouched():
    """CH-9: all other options are the very same objects in the same order, doubles included."""
    pointer = object()
    others = [("grpc.lb_policy_name", "round_robin"), ["grpc.y", pointer], ("grpc.y", 2), ("grpc.initial_reconect", 3)]

    _, core = read_options([others[0], (INITIAL, 5), others[1], others[2], (MAX, 5), others[3]])

    assert all(given is taken for given, taken in zip(others, core, strict=False))
    assert len(core) == len(others) + 1


@pytest.mark.parametrize("key", ["grpc.backoff.jitter", "grpc_backoffice.jitter", "mine.jitter", "grpc_backoff"])
def test_keys_of_others(key):
    """CH-9: only what can be meant for nobody else is ours."""
    _, core = read_options([(key, "x")])

    assert core[0] == (key, "x")


@pytest.mark.parametrize(
    ("given", "told"), [(None, 1_800_000), (5, 1000), (2007, 2007), (60_001, 60_001), (2**31 - 1, 2**31 - 1)]
)
def test_core_hears_idle_timeout(given, told):
    """CB-14: grpcio is told the idle timeout that was decided upon, once."""
    _, core = read_options([] if given is None else [(IDLE, given), (IDLE, 7)])

    assert core == ((IDLE, told),)


def test_core_hears_idle_timeout_of_policy():
    """CB-14: also that of a policy given as an argument, over the option's."""
    _, core = read_options([(IDLE, 5000)], replace(CONNECT, idle_timeout=90.0))

    assert core == ((IDLE, 90_000),)


def test_policy_overrides_options():
    """BP-3: an argument overrides the options."""
    policy = replace(CONNECT, stable_after=3.0)

    assert read_options([("grpc_backoff.stable_after", 5), (INITIAL, 10)], policy)[0] is policy


@pytest.mark.parametrize("key", [INITIAL, "grpc_backoff.jitter", "grpc_backoff.nothing"])
def test_options_checked_beside_policy(key):
    """CH-10: options are checked all the same when a policy overrides them."""
    with pytest.raises(OptionError):
        read_options([(key, "x")], CONNECT)


@pytest.mark.parametrize("policy", [GRPC, "grpc", 0, {}])
def test_no_policy(policy):
    """CH-10: what is no connect policy is refused, also if it is false."""
    with pytest.raises(OptionError) as caught:
        read_options([], policy)

    assert str(caught.value) == f"policy = {policy!r} is not allowed; a ConnectPolicy is"


def test_keys_listed():
    """CH-9: the list of keys has each that means something, once."""
    assert len(OPTION_KEYS) == len(set(OPTION_KEYS)) == 12
    assert {INITIAL, MAX, MIN, IDLE, FIXED, "grpc_backoff.config"} < set(OPTION_KEYS)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "backoff.toml"
    path.write_text("[connection]\njitter = 0.5\nmultiplier = 3\ninitial_backoff = 7\n")
    return path


@pytest.mark.parametrize("kind", [str, Path])
def test_config_option(file, kind):
    """BP-3: the option names the file, as text or as a path."""
    policy, core = read_options([("grpc_backoff.config", kind(file))])

    assert policy.backoff == BackoffPolicy(Exponential(7.0, 3.0), 120.0, Proportional(0.5))
    assert "grpc_backoff.config" not in dict(core)


def test_option_over_file(file):
    """BP-3: a channel option overrides the file, whichever stands first."""
    policy, _ = read_options([("grpc_backoff.jitter", 0.0), ("grpc_backoff.config", file)])

    assert policy.backoff == BackoffPolicy(Exponential(7.0, 3.0), 120.0, Proportional(0.0))


def test_file_over_preset(file):
    """BP-3: the file overrides the preset, also one that an option names."""
    policy, _ = read_options([("grpc_backoff.preset", "grpc"), ("grpc_backoff.config", file)])

    assert policy.initial_backoff == 7.0


def test_argument_over_file(file):
    """BP-3: an argument overrides the file."""
    assert read_options([("grpc_backoff.config", file)], CONNECT)[0] is CONNECT


def test_max_option_below_initial_of_file(file):
    """BP-3: a maximum among the options lowers a higher initial backoff of the file."""
    policy, _ = read_options([("grpc_backoff.config", file), (MAX, 2000)])

    assert (policy.initial_backoff, policy.backoff.cap) == (2.0, 2.0)


def test_initial_option_above_max_of_file(file):
    """BP-3: an initial backoff among the options lifts a lower maximum of the file."""
    file.write_text("[connection]\nmax_backoff = 3\n")

    policy, _ = read_options([("grpc_backoff.config", file), (INITIAL, 5000)])

    assert (policy.initial_backoff, policy.backoff.cap) == (5.0, 5.0)


def test_fixed_over_file(file):
    """BP-3: the fixed backoff is a channel option, so it overrides the file."""
    policy, _ = read_options([("grpc_backoff.config", file), (FIXED, 200)])

    assert policy.backoff == BackoffPolicy(Exponential(0.2, 1.0), 0.2, Proportional(0.0))


def test_environment(file, monkeypatch):
    """BP-3: without an option the environment names the file; it is read when the channel is made."""
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))

    assert read_options([])[0].initial_backoff == 7.0


def test_empty_environment(monkeypatch):
    """BP-3: an empty variable is as good as none."""
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", "")

    assert read_options([])[0] == CONNECT


def test_option_over_environment(file, monkeypatch, tmp_path):
    """BP-3: where an option names a file, the environment's is not looked at."""
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(tmp_path / "missing.toml"))

    assert read_options([("grpc_backoff.config", file)])[0].initial_backoff == 7.0


def test_bad_file_of_environment(monkeypatch, tmp_path):
    """BP-4: a file that the environment names and that is missing is an error, not a default."""
    missing = tmp_path / "missing.toml"
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(missing))

    with pytest.raises(ConfigError) as caught:
        read_options([])

    assert str(caught.value) == f"{missing}: cannot be read: No such file or directory"


def test_file_checked_beside_policy(file):
    """CH-10: a bad file is an error also when an argument overrides it."""
    file.write_text("[connection]\njitter = 2\n")

    with pytest.raises(ConfigError, match=r"connection\.jitter"):
        read_options([("grpc_backoff.config", file)], CONNECT)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("GRPC_BACKOFF_CONFIG", raising=False)
