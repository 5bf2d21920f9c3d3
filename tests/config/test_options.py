"""Channel options: which of them this library interprets, their values, and how all the rest are passed on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from grpc_backoff.config.core_options import key_text
from grpc_backoff.config.file import read_config
from grpc_backoff.config.options import OPTION_KEYS, read_options
from grpc_backoff.errors import ConfigError, OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.jitter import NoJitter, Proportional
from grpc_backoff.policy.presets import CONNECT, GRPC, RETRY_PRESETS
from grpc_backoff.policy.strategy import Exponential, Fixed
from tests.texts import begins, exactly

INITIAL = "grpc.initial_reconnect_backoff_ms"
MAX = "grpc.max_reconnect_backoff_ms"
MIN = "grpc.min_reconnect_backoff_ms"
IDLE = "grpc.client_idle_timeout_ms"
FIXED = "grpc.testing.fixed_reconnect_backoff_ms"

NAMED_BY_IT = "(the environment variable GRPC_BACKOFF_CONFIG names this file)"
LISTED = f"expected one of: {', '.join(key for key in OPTION_KEYS if key != FIXED)}"
POOL = {
    "max_connections": (1, "preset grpc"),
    "streams_per_connection": (100, "preset grpc"),
    "resolve_every": (0.0, "preset grpc"),
    "min_resolve_interval": (30.0, "preset grpc"),
    "quiet_after": (0.0, "preset grpc"),
    "answer_within": (5.0, "preset grpc"),
    "watch_network": (False, "preset grpc"),
}


class Unshowable:
    """A value whose `repr` raises an exception."""

    def __repr__(self):
        raise RuntimeError("no")


class Pointer:
    """A value whose `int` is an address, as grpcio takes it."""

    def __int__(self):
        return 0


def meant(key):
    return f"did you mean {key!r}?"


# Values, and how the error shows them. test_settings.py has a wrong number for every setting.
BAD_VALUES = [
    (INITIAL, 0, "0"),
    (INITIAL, 2**31, "2147483648"),
    (INITIAL, 100.0, "100.0"),
    (INITIAL, True, "True"),
    (INITIAL, 10**400, f"1{'0' * 199}..."),
    (MAX, 0, "0"),
    (MAX, b"5", "b'5'"),
    (MIN, -20000, "-20000"),
    (MIN, False, "False"),
    (FIXED, 0, "0"),
    (FIXED, "1s", "'1s'"),
    (IDLE, -1, "-1"),
    (IDLE, 0.5, "0.5"),
    ("grpc_backoff.multiplier", 10**5000, "<int>"),
    ("grpc_backoff.jitter", 1, "1"),
    ("grpc_backoff.jitter", "fulll", "'fulll'"),
    ("grpc_backoff.jitter", Unshowable(), "<Unshowable>"),
    ("grpc_backoff.stable_after", "5s", "'5s'"),
    ("grpc_backoff.reconnect", "Lazy", "'Lazy'"),
    ("grpc_backoff.max_connections", 2.0, "2.0"),
    ("grpc_backoff.max_connections", True, "True"),
    ("grpc_backoff.resolve_every", math.inf, "inf"),
    ("grpc_backoff.quiet_after", math.nan, "nan"),
    ("grpc_backoff.watch_network", "maybe", "'maybe'"),
    ("grpc.dns_min_time_between_resolutions_ms", -1, "-1"),
    ("grpc_backoff.preset", "gprc", "'gprc'"),
    ("grpc_backoff.preset", None, "None"),
    ("grpc_backoff.config", "", "''"),
    ("grpc_backoff.config", None, "None"),
    ("grpc_backoff.config", b"a.toml", "b'a.toml'"),
]

BAD_KEYS = [
    ("grpc_backoff.multiplyer", meant("grpc_backoff.multiplier")),
    ("grpc_backoff.Jitter", meant("grpc_backoff.jitter")),
    ("grpc_backoff.max_backoff", meant(MAX)),
    ("grpc-backoff.jitter", meant("grpc_backoff.jitter")),
    ("grpc_backoff_jitter", meant("grpc_backoff.jitter")),
    (b"grpc_backoff.jiter", meant("grpc_backoff.jitter")),
    ("GRPC_BACKOFF.PRESET", meant("grpc_backoff.preset")),
    ("grpcbackoff.reconect", meant("grpc_backoff.reconnect")),
    ("grpc_backof.jitter", meant("grpc_backoff.jitter")),
    ("Grpc_Bakcoff.preset", meant("grpc_backoff.preset")),
    ("grpc_backoffs.xyz", LISTED),
    ("grpc_backoff.", LISTED),
    ("grpc_backoff.xyz", LISTED),
]


@pytest.mark.parametrize(("key", "value", "shown"), BAD_VALUES, ids=range(len(BAD_VALUES)))
def test_bad_value(key, value, shown):
    """CH-10: a bad option raises an error that contains the key, the value and the allowed values."""
    with pytest.raises(OptionError, match=begins(f"{key}={shown}: expected ")) as caught:
        read_options([(key, value)])

    assert (caught.value.key, caught.value.value) == (key, value)


def test_a_limit_of_0():
    """CH-9: a limit of 0 ms, which published clients set, means 100 ms, as in C-core."""
    assert read_options([(MIN, 0)]).policy.min_connect_timeout == 0.1


@pytest.mark.parametrize("option", [("grpc.x", "\ud800"), ("grpc.\ud800", 1)])
def test_text_that_the_core_cannot_take(option):
    """CH-10: what is not Unicode is refused at creation, with grpcio's kind of error."""
    with pytest.raises(UnicodeEncodeError):
        read_options([option])


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, TypeError),
        (object(), TypeError),
        ([1], TypeError),
        (2**31, OverflowError),
        (-(2**31) - 1, OverflowError),
    ],
)
def test_value_that_the_core_cannot_take(value, error):
    """CH-10: what grpcio would refuse in each attempt to dial is refused at creation, with grpcio's kind of error."""
    with pytest.raises(error, match=begins("grpc.x=")):
        read_options([("grpc.x", value)])


def test_values_that_the_core_takes():
    """CH-9: what grpcio accepts as a value is passed on, also an object that stands for a pointer."""
    values = [2**31 - 1, -(2**31), True, "text", b"bytes", Pointer()]
    given = [(f"grpc.x{number}", value) for number, value in enumerate(values)]
    assert list(read_options(given).core_options[: len(given)]) == given


@pytest.mark.parametrize(("key", "allowed"), BAD_KEYS)
def test_bad_key(key, allowed):
    """CH-10: the error for a misspelt key suggests the right one, or lists all of them."""
    with pytest.raises(OptionError, match=exactly(f"unknown option {key_text(key)!r}: {allowed}")):
        read_options([(key, 0)])


@pytest.mark.parametrize("entry", ["grpc.x", ("grpc.x",), (1, "x"), None])
def test_no_pair(entry):
    """CH-10: an entry that is not a pair of a key and a value is reported with its index."""
    with pytest.raises(OptionError, match=exactly(f"options[1]={entry!r}: expected a pair of a key and a value")):
        read_options([("grpc.y", 1), entry])


def test_max_below_initial():
    """CH-10: if both are given, a maximum below the initial backoff is an error that names both."""
    with pytest.raises(OptionError, match=exactly(f"{MAX}=4999: expected at least {INITIAL} (5000)")):
        read_options([(INITIAL, 5000), (MAX, 4999)])


@pytest.mark.parametrize(
    ("options", "first", "cap"),
    [
        ([(INITIAL, 5000), (MAX, 5000)], 5.0, 5.0),
        ([(MAX, 300)], 0.3, 0.3),  # lowers the initial backoff, as in grpcio
        ([(INITIAL, 300_000)], 300.0, 300.0),  # raises the maximum
        ([(INITIAL, 1), (MAX, 2)], 0.001, 0.002),  # grpcio allows no less than 100 ms
    ],
)
def test_initial_and_max(options, first, cap):
    """CH-9: the maximum may equal the initial backoff; one alone moves the other's default; neither has a floor."""
    policy = read_options([*options, (MIN, 3)]).policy

    assert (policy.initial_backoff, policy.backoff.cap, policy.min_connect_timeout) == (first, cap, 0.003)


def test_no_options():
    """CB-2: without options, the policy is gRPC's."""
    assert read_options([]).policy == CONNECT


def test_every_option():
    """CH-9: every option sets its part of the policy, and milliseconds become seconds."""
    policy = read_options(
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
    ).policy

    assert policy == replace(
        CONNECT,
        backoff=BackoffPolicy(Exponential(0.25, 3.0), 8.0, Proportional(0.5)),
        min_connect_timeout=1.5,
        idle_timeout=60.0,
        jitter_first=True,
        stable_after=2.0,
        reconnect=Reconnect.EAGER,
    )


@pytest.mark.parametrize("value", [True, 1])
def test_flag_spellings(value):
    """CH-9: flags may be 1 instead of True, because grpc's options have no booleans."""
    assert read_options([("grpc_backoff.jitter_first", value)]).policy.jitter_first is True


@pytest.mark.parametrize(("value", "seconds"), [(0, 1.0), (999, 1.0), (1001, 1.001), (2**31 - 1, math.inf)])
def test_idle_timeout(value, seconds):
    """CB-14: the idle timeout is at least one second, as in C-core, and the largest value means never."""
    assert read_options([(IDLE, value)]).policy.idle_timeout == seconds


def test_first_wins():
    """CH-9: if a key occurs twice, the first value wins, as in grpcio, and the second is not even checked."""
    assert read_options([(INITIAL, 100), (INITIAL, 900), (INITIAL, "?")]).policy.initial_backoff == 0.1


def test_bytes_key():
    """CH-9: keys may be bytes, as in grpcio."""
    read = read_options([(INITIAL.encode(), 100), (b"grpc.x", 1)])

    assert read.policy.initial_backoff == 0.1
    assert read.core_options[0] == (b"grpc.x", 1)


def test_others_untouched():
    """CH-9: all other options are passed on as the same objects in the same order, including duplicates."""
    pointer = Pointer()
    others = [("grpc.lb_policy_name", "round_robin"), ["grpc.y", pointer], ("grpc.y", 2), ("grpc.initial_window", 3)]

    core = read_options([others[0], (INITIAL, 5), others[1], others[2], (MAX, 5), others[3]]).core_options

    assert all(given is taken for given, taken in zip(others, core, strict=False))
    assert len(core) == len(others) + 1


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("grpc.initial_reconnect_backof_ms", INITIAL),
        ("grpc.initial_reconnect_backoff", INITIAL),
        ("grpc_initial_reconnect_backoff_ms", INITIAL),
        ("grpc.max_backoff_ms", MAX),
        ("GRPC.MAX_RECONNECT_BACKOFF_MS", MAX),
        (b"grpc.min_reconect_backoff_ms", MIN),
        ("grpc.client_idle_timeout", IDLE),
    ],
)
def test_near_miss_of_grpcs_keys(key, right):
    """CH-9: a key that resembles one of grpc's is passed on, with a single remark that names the correct key."""
    read = read_options([(key, 5), (key, 6)])

    name = key if isinstance(key, str) else key.decode()
    said = f"the option '{name}' is passed to grpcio, which does not know it: did you mean '{right}'?"
    assert read.remarks == (said,)
    assert read.core_options[:2] == ((key, 5), (key, 6))


# From grpcio 1.85.1's 452 options and names: those most similar to the four grpc options that this library implements.
NEAREST_OF_GRPCIO = [
    *("grpc.keepalive_timeout_ms", "grpc.keepalive_time_ms", "grpc.grpclb_call_timeout_ms"),
    *("grpc.http2.ping_timeout_ms", "grpc.max_connection_idle_ms", "grpc.max_connection_age_ms"),
    *("grpc.priority_failover_timeout_ms", "grpc.server_handshake_timeout_ms", "grpc.grpclb_fallback_timeout_ms"),
    FIXED,
]


@pytest.mark.parametrize("key", NEAREST_OF_GRPCIO)
def test_keys_of_grpcio(key):
    """CH-9: grpcio's other options are passed on without a remark."""
    assert read_options([(key, 5)]).remarks == ()


@pytest.mark.parametrize("key", ["grpc.backoff.jitter", "grpc_backoffice.jitter", "mine.jitter", "grpc_backoff"])
def test_keys_of_others(key):
    """CH-9: only a key that starts with exactly `grpc_backoff.` is this library's; similar keys are passed on."""
    assert read_options([(key, "x")]).core_options[0] == (key, "x")


@pytest.mark.parametrize(
    ("given", "policy", "told"),
    [
        ([], None, 1_800_000),
        *(([(IDLE, given), (IDLE, 7)], None, max(given, 1000)) for given in (5, 2007, 60_001, 2**31 - 1)),
        ([(IDLE, 5000)], replace(CONNECT, idle_timeout=90.0), 90_000),
    ],
)
def test_core_hears_idle_timeout(given, policy, told):
    """CB-14: grpcio gets the effective idle timeout, exactly once; a policy given as an argument overrides options."""
    assert read_options(given, policy=policy).core_options == ((IDLE, told),)


def test_policy_overrides_options():
    """BP-3: a policy given as an argument overrides the options."""
    policy = replace(CONNECT, stable_after=3.0)

    assert read_options([("grpc_backoff.stable_after", 5), (INITIAL, 10)], policy=policy).policy is policy


@pytest.mark.parametrize("key", [INITIAL, "grpc_backoff.jitter", "grpc_backoff.nothing"])
def test_options_checked_beside_policy(key):
    """CH-10: options are checked even if a policy argument overrides them."""
    with pytest.raises(OptionError):
        read_options([(key, "x")], policy=CONNECT)


@pytest.mark.parametrize("policy", [GRPC, "grpc", 0, {}])
def test_no_policy(policy):
    """CH-10: an object that is not a connect policy is rejected, even if it is falsy."""
    with pytest.raises(
        OptionError,
        match=exactly(
            f"policy={policy!r}: expected a ConnectPolicy; a preset is named by the option grpc_backoff.preset"
        ),
    ):
        read_options([], policy=policy)


def test_preset_without_a_delay():
    """CH-10: for a preset that has no first gap, the error names the option that sets one."""
    with pytest.raises(OptionError, match=exactly(f"grpc_backoff.preset='fixed' requires {INITIAL!r} as well")):
        read_options([("grpc_backoff.preset", "fixed")])
    assert read_options([("grpc_backoff.preset", "fixed"), (INITIAL, 500)]).policy.initial_backoff == 0.5


def test_keys_listed():
    """CH-9: `OPTION_KEYS` lists each option that the library interprets exactly once."""
    assert len(OPTION_KEYS) == len(set(OPTION_KEYS)) == 19
    assert {INITIAL, MAX, MIN, IDLE, FIXED, "grpc_backoff.config"} < set(OPTION_KEYS)


def test_interval_is_passed_on():
    """PO-7, CH-9: grpcio also gets the shortest time between two resolutions, but only if it was set."""
    key = "grpc.dns_min_time_between_resolutions_ms"

    assert dict(read_options([(key, 1500)]).core_options)[key] == 1500
    assert read_options([(key, 1500)]).pooling.min_resolve_interval == 1.5
    assert key not in dict(read_options([]).core_options)


FILE = "jitter = 0.5\nmultiplier = 3\ninitial_backoff = 7\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "backoff.toml"
    path.write_text(f"[connection]\n{FILE}")
    return path


@pytest.mark.parametrize("kind", [str, Path])
def test_config_option(file, kind):
    """BP-3: the option `grpc_backoff.config` names the file, as a string or a path object."""
    read = read_options([("grpc_backoff.config", kind(file))])

    assert read.policy.backoff == BackoffPolicy(Exponential(7.0, 3.0), 120.0, Proportional(0.5))
    assert "grpc_backoff.config" not in dict(read.core_options)


@pytest.mark.parametrize(
    ("options", "content", "backoff"),
    [
        ([("grpc_backoff.jitter", 0.0)], FILE, BackoffPolicy(Exponential(7.0, 3.0), 120.0, Proportional(0.0))),
        # A preset is the last of all sources, even if an option names it.
        ([("grpc_backoff.preset", "grpc")], FILE, BackoffPolicy(Exponential(7.0, 3.0), 120.0, Proportional(0.5))),
        # A maximum lowers the initial backoff, wherever the user sets either.
        ([(MAX, 2000)], FILE, BackoffPolicy(Exponential(2.0, 3.0), 2.0, Proportional(0.5))),
        ([(INITIAL, 5000)], "max_backoff = 3", BackoffPolicy(Exponential(3.0, 1.6), 3.0, Proportional(0.2))),
        ([(FIXED, 200)], FILE, BackoffPolicy(Exponential(0.2, 1.0), 0.2, NoJitter())),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_option_over_file(file, options, content, backoff, order):
    """BP-3: a channel option overrides the file, which overrides the preset, in whatever order they are given."""
    file.write_text(f"[connection]\n{content}")

    assert read_options([("grpc_backoff.config", file), *options][::order]).policy.backoff == backoff


def test_empty_environment(monkeypatch):
    """BP-3: an empty environment variable counts as unset."""
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", "")

    assert read_options([]).policy == CONNECT


def test_bad_file_of_environment(monkeypatch, tmp_path):
    """BP-4: a missing file that the environment variable names is an error; defaults are not used instead."""
    missing = tmp_path / "missing.toml"
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(missing))

    problem = f"{missing}: cannot be read: No such file or directory {NAMED_BY_IT}"
    with pytest.raises(ConfigError, match=exactly(problem)):
        read_options([])


def test_bad_value_in_the_file_of_the_environment(monkeypatch, file):
    """BP-4: for a bad file from the environment variable, the error mentions the variable and has `path` and `key`."""
    file.write_text("[connection]\nmultiplier = 0\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))

    problem = f"{file}: connection.multiplier=0: expected a finite number of at least 1 {NAMED_BY_IT}"
    with pytest.raises(ConfigError, match=exactly(problem)) as caught:
        read_options([])

    assert (caught.value.path, caught.value.key) == (str(file), "connection.multiplier")


def test_file_checked_beside_policy(file):
    """CH-10: a bad file is an error even if a policy argument overrides its settings."""
    file.write_text("[connection]\njitter = 2\n")

    with pytest.raises(ConfigError, match=r"connection\.jitter"):
        read_options([("grpc_backoff.config", file)], policy=CONNECT)


TARGETS = """
[connection]
max_backoff = 50
jitter = 0.1

[targets."*.example:443"]
max_backoff = "40s"
stable_after = "500ms"

[policies.mine]
delay = 3
jitter = "full"
"""


def told(values):
    return {part: (value.value, str(value)) for part, value in values.items()}


def test_precedence_part_by_part(file):
    """BP-3: each part comes from the options, else the target's table, else `[connection]`, else the preset."""
    file.write_text(TARGETS)
    options = [("grpc_backoff.multiplier", 2), ("grpc_backoff.config", file)]
    read = read_options(options, target="a.example:443")

    assert read.policy == replace(
        CONNECT, backoff=BackoffPolicy(Exponential(1.0, 2.0), 40.0, Proportional(0.1)), stable_after=0.5
    )
    assert told(read.values) == {
        "backoff": ("exponential", "preset grpc"),
        "delay": (1.0, "preset grpc"),
        "multiplier": (2, "option: grpc_backoff.multiplier"),
        "max_delay": (40.0, f'file {file}: targets."*.example:443".max_backoff'),
        "jitter": (Proportional(0.1), f"file {file}: connection.jitter"),
        "min_connect_timeout": (20.0, "preset grpc"),
        "jitter_first": (False, "preset grpc"),
        "stable_after": (0.5, f'file {file}: targets."*.example:443".stable_after'),
        "reconnect": (Reconnect.LAZY, "preset grpc"),
        "idle_timeout": (1800.0, "preset grpc"),
        **POOL,
    }


@pytest.mark.parametrize("target", ["", "a.example:80", "a.example:443:1", "A.EXAMPLE:443"])
def test_other_targets(file, target):
    """BP-3: a table for other targets has no effect, whether an option or an argument names the file."""
    file.write_text(TARGETS)

    assert read_options([("grpc_backoff.config", file)], target=target).policy.backoff.cap == 50.0
    assert read_options([], config=file, target=target).policy.backoff.cap == 50.0
    assert read_options([], config=file, target="b.example:443").policy.backoff.cap == 40.0


def test_preset_of_the_file(file):
    """BP-3: an option may name a policy from the file; the file's connection tables still override that policy."""
    file.write_text(TARGETS)
    read = read_options([("grpc_backoff.preset", "mine"), ("grpc_backoff.config", file)])

    assert read.policy.backoff == BackoffPolicy(Fixed(3.0), 50.0, Proportional(0.1))
    assert told(read.values)["delay"] == (3.0, f"file {file}: policies.mine.delay")
    assert told(read.values)["backoff"] == ("fixed", "preset fixed")


def test_effective_of_a_lowered_first_wait(file):
    """BP-3: if the first wait is lowered to the maximum, its reported source is the maximum's."""
    read = read_options([("grpc_backoff.config", file), (MAX, 2000)])

    assert told(read.values)["delay"] == (2.0, f"option: {MAX}")
    assert told(read.values)["max_delay"] == (2.0, f"option: {MAX}")


def test_effective_of_an_argument():
    """BP-3: if a whole policy is given as an argument, the argument is the source of all its values."""
    policies = [CONNECT, *(replace(CONNECT, backoff=retry.backoff) for retry in RETRY_PRESETS.values())]
    for policy in policies:
        values = read_options([(INITIAL, 100)], policy=policy).values
        assert {str(value) for part, value in values.items() if part not in POOL} == {"argument"}
        assert told(values)["max_delay"] == (policy.backoff.cap, "argument")
    assert told(read_options([], policy=CONNECT).values)["multiplier"] == (1.6, "argument")


def test_fixed_backoff():
    """CH-9: grpcio's key for a fixed backoff sets the backoff and the timeout, and turns off growth and jitter."""
    others = [(INITIAL, 100), ("grpc_backoff.jitter", 0.5), ("grpc_backoff.preset", "steps")]
    read = read_options([*others, (FIXED, 700)])

    assert read.policy.backoff == BackoffPolicy(Exponential(0.7, 1.0), 0.7, NoJitter())
    assert read.policy.min_connect_timeout == 0.7
    assert FIXED not in dict(read.core_options)
    parts = {"backoff", "delay", "multiplier", "max_delay", "jitter", "min_connect_timeout"}
    assert {part for part, (_, origin) in told(read.values).items() if origin == f"option: {FIXED}"} == parts


@pytest.fixture
def three(tmp_path, monkeypatch):
    """Return three files with different first waits; the environment variable names the third."""
    paths = [tmp_path / f"{number}.toml" for number in (1, 2, 3)]
    for number, path in enumerate(paths, 1):
        path.write_text(f"[connection]\ninitial_backoff = {number}\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(paths[2]))
    return paths


def test_argument_names_the_file(three):
    """BP-3: a file argument overrides the option, which overrides the environment variable; only one file is read."""
    option = ("grpc_backoff.config", three[1])

    assert read_options([option], config=three[0]).policy.initial_backoff == 1.0
    assert read_options([option]).policy.initial_backoff == 2.0
    assert read_options([]).policy.initial_backoff == 3.0


@pytest.mark.parametrize("kind", [str, Path, read_config])
def test_config_argument(three, kind):
    """BP-3: the argument is a path, or a file that was already read; it overrides the option and the environment."""
    three[2].write_text("[")
    read = read_options([("grpc_backoff.config", "missing.toml")], config=kind(three[0]))

    assert read.policy.initial_backoff == 1.0


@pytest.mark.parametrize("value", ["", 5, b"a.toml", {}, False])
def test_no_config(value):
    """CH-10: a value that is neither a path nor a file that was already read is rejected."""
    with pytest.raises(OptionError, match=exactly(f"config={value!r}: expected the path of a file")):
        read_options([], config=value)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("GRPC_BACKOFF_CONFIG", raising=False)
