"""The TOML file: its settings, and the errors for invalid files."""

from __future__ import annotations

import math
import os
import stat
from dataclasses import replace

import pytest

from grpc_backoff.config.file import ENVIRONMENT_VARIABLE, TABLES, read_config
from grpc_backoff.config.methods import read_retry
from grpc_backoff.config.options import read_options
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.errors import ConfigError, OptionError, PolicyWarning
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional
from grpc_backoff.policy.pool import PoolPolicy
from grpc_backoff.policy.presets import CONNECT, RETRY
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Exponential, Fixed, Steps

TIME = 'a finite number of seconds above 0, or a string such as "500ms", "1s" or "2m"'
CONNECTION_KEYS = (
    "preset, initial_backoff, max_backoff, min_connect_timeout, "
    "idle_timeout, multiplier, jitter, jitter_first, "
    "stable_after, reconnect, max_connections, streams_per_connection, "
    "resolve_every, min_resolve_interval, quiet_after, answer_within, "
    "watch_network"
)
METHOD_KEYS = (
    "preset, retry, max_attempts, delay, backoff, "
    "max_delay, jitter, multiplier, max_exponent, steps, "
    "timeout, deadline, codes, server_delay_jitter, "
    "max_server_delay"
)
BUDGET_KEYS = "one of: max_tokens, token_ratio"
PRESETS = "grpc, contention, steps, standard, aggressive, conservative, background, durable, fixed, linear, exponential"


SENTENCE = None
"""In place of a value: the message is a sentence, because the error is not about a value alone."""


def unknown(key, kind="setting", *, nearest):
    return f"unknown {kind} {key!r}: did you mean {nearest!r}?"


# A table, a line for it, and the value as the error shows it. test_settings.py has a wrong number for every setting,
# and tests/policy/test_checks.py what each check allows.
BAD_VALUES = [
    ("connection", 'initial_backoff = "5 parsecs"', "'5 parsecs'"),
    ("connection", "max_backoff = inf", "inf"),
    ("connection", "jitter = 1.0", "1.0"),
    ("connection", "jitter = {a = 1}", "{'a': 1}"),
    ("connection", 'jitter = "much"', "'much'"),
    ("connection", 'jitter_first = "true"', "'true'"),
    ("connection", "stable_after = 12:00:00", "datetime.time(12, 0)"),
    ("connection", 'reconnect = "never"', "'never'"),
    ("connection", "preset = 4", "4"),
    ('targets."a:*"', "initial_backoff = -1.5", "-1.5"),
    ('methods."*"', 'backoff = "quadratic"', "'quadratic'"),
    ('methods."*"', 'codes = ["UNAVAILABLE", 14]', "14"),
]

# The same, with the allowed values: names, and the forms of a jitter.
BAD_NAMES = [
    ("connection", 'preset = "stepps"', "'stepps'", "the name of a policy; did you mean 'steps'?"),
    ("connection", 'preset = "xyz"', "'xyz'", f"one of: {PRESETS}"),
    ("connection", 'preset = "linear"', SENTENCE, "connection.preset='linear' requires 'delay' as well"),
    ("connection", "multiplyer = 2", SENTENCE, unknown("connection.multiplyer", nearest="connection.multiplier")),
    (
        "connection",
        "max_reconnect_backoff_ms = 9",
        SENTENCE,
        unknown("connection.max_reconnect_backoff_ms", nearest="connection.max_backoff"),
    ),
    ("connection", "xyz = 0", SENTENCE, f"unknown setting 'connection.xyz': expected one of: {CONNECTION_KEYS}"),
    ('methods."*"', 'codes = ["unavailible"]', "'unavailible'", "a status code; did you mean 'UNAVAILABLE'?"),
    ('methods."*"', "retries = 3", SENTENCE, unknown('methods."*".retries', nearest='methods."*".retry')),
    ('methods."*"', '"max delay" = 3', SENTENCE, unknown('methods."*"."max delay"', nearest='methods."*".max_delay')),
    ('methods."*"', "xyz = 0", SENTENCE, f"unknown setting 'methods.\"*\".xyz': expected one of: {METHOD_KEYS}"),
    ("retry_budget", "maxTokens = 10", SENTENCE, unknown("retry_budget.maxTokens", nearest="retry_budget.max_tokens")),
    ("retry_budget", "xyz = 1", SENTENCE, f"unknown setting 'retry_budget.xyz': expected {BUDGET_KEYS}"),
]

# Values that are valid on their own but not together: the file, the key at fault, its value, and what is allowed.
NOT_TOGETHER = [
    (
        "[connection]\ninitial_backoff = 5\nmax_backoff = 4.5",
        "connection.max_backoff",
        "4.5",
        "at least connection.initial_backoff (5)",
    ),
    (
        '[targets.x]\ninitial_backoff = "5s"\nmax_backoff = "4500ms"',
        "targets.x.max_backoff",
        "'4500ms'",
        "at least targets.x.initial_backoff (5s)",
    ),
    ("[policies.x]\ndelay = 5\nmax_delay = 4", "policies.x.max_delay", "4", "at least policies.x.delay (5)"),
    (
        "[policies.x]\nretry = 5\nmax_attempts = 6",
        "policies.x.max_attempts",
        SENTENCE,
        "'policies.x.retry' and 'policies.x.max_attempts' set the same value: give only one of them",
    ),
    (
        '[methods."*"]\nmax_attempts = 6\nretry = 5',
        'methods."*".retry',
        SENTENCE,
        """'methods."*".max_attempts' and 'methods."*".retry' set the same value: give only one of them""",
    ),
    (
        '[policies.x]\ndelay = 1\nbackoff = "fixed"\nmultiplier = 2',
        "policies.x.multiplier",
        SENTENCE,
        "'policies.x.multiplier' applies only with backoff 'exponential' or 'steps', not with 'fixed'",
    ),
    (
        "[policies.x]\ndelay = 1\nmultiplier = 2",
        "policies.x.multiplier",
        SENTENCE,
        "'policies.x.multiplier' applies only with backoff 'exponential' or 'steps', not with 'fixed'",
    ),
    (
        '[policies.x]\ndelay = 1\nbackoff = "linear"\nmax_exponent = 2',
        "policies.x.max_exponent",
        SENTENCE,
        "'policies.x.max_exponent' applies only with backoff 'exponential', not with 'linear'",
    ),
    (
        '[policies.x]\ndelay = 1\nbackoff = "exponential"\nsteps = [1]',
        "policies.x.steps",
        SENTENCE,
        "'policies.x.steps' applies only with backoff 'steps', not with 'exponential'",
    ),
    (
        '[policies.x]\npreset = "steps"\ndelay = 3',
        "policies.x.delay",
        SENTENCE,
        "'policies.x.delay' applies only with backoff 'fixed' or 'linear' or "  # noqa: ISC004
        "'exponential' or 'decorrelated', not with 'steps'",
    ),
    (
        '[connection]\npreset = "steps"\ninitial_backoff = 3',
        "connection.initial_backoff",
        SENTENCE,
        "'connection.initial_backoff' applies only with backoff 'fixed' or 'linear' or "  # noqa: ISC004
        "'exponential' or 'decorrelated', not with 'steps'",
    ),
    (
        '[policies.x]\ndelay = 1\nbackoff = "decorrelated"\njitter = "full"',
        "policies.x.jitter",
        "'full'",
        "'none', because decorrelated backoff has its own jitter",
    ),
    (
        '[policies.x]\ndelay = 1\nbackoff = "decorrelated"\n[methods."*"]\npreset = "x"\njitter = 0.2',
        'methods."*".jitter',
        "0.2",
        "'none', because decorrelated backoff has its own jitter",
    ),
    (
        '[policies.x]\nbackoff = "steps"',
        "policies.x.backoff",
        SENTENCE,
        "policies.x.backoff='steps' requires 'steps' as well",
    ),
    ("[policies.x]\nsteps = [1, 0]", "policies.x.steps[1]", "0", TIME),
    ('[policies.x]\nsteps = "1s 2"\n[policies.y]\nsteps = "1s 2x"', "policies.y.steps[1]", "'2x'", TIME),
    ('[policies.x]\npreset = "y"', "policies.x.preset", "'y'", f"one of: x, {PRESETS}"),
    (
        '[policies.x]\npreset = "x"',
        "policies.x.preset",
        SENTENCE,
        "'policies.x.preset' makes a policy inherit from itself: x -> x",
    ),
    (
        '[policies.standard]\npreset = "x"\n[policies.x]\npreset = "standard"',
        "policies.x.preset",
        SENTENCE,
        "'policies.x.preset' makes a policy inherit from itself: standard -> x -> standard",
    ),
    ('[methods."a/b/c"]', 'methods."a/b/c"', "'a/b/c'", "'package.Service/Method', 'package.Service' or '*'"),
    ('[methods."/a.B/C"]', 'methods."/a.B/C"', "'/a.B/C'", "'package.Service/Method', 'package.Service' or '*'"),
    ('[methods."a.B/*"]', 'methods."a.B/*"', "'a.B/*'", "'package.Service/Method', 'package.Service' or '*'"),
    ("[methods.5]", 'methods."5"', "'5'", "'package.Service/Method', 'package.Service' or '*'"),
    ('[methods.""]', 'methods.""', "''", "'package.Service/Method', 'package.Service' or '*'"),
    (
        "[retry_budget]\nmax_tokens = 10",
        "retry_budget.max_tokens",
        SENTENCE,
        "'retry_budget.max_tokens' requires 'token_ratio' as well",
    ),
    (
        "[retry_budget]\ntoken_ratio = 0.1",
        "retry_budget.token_ratio",
        SENTENCE,
        "'retry_budget.token_ratio' requires 'max_tokens' as well",
    ),
    ("retry_budget = 5", "retry_budget", "5", "a table"),
    ("[[retry_budget]]", "retry_budget", "[{}]", "a table"),
    ("[retry_budget.x]", "retry_budget.x", SENTENCE, f"unknown setting 'retry_budget.x': expected {BUDGET_KEYS}"),
    (
        "[retry_buget]\nmax_tokens = 10",
        "retry_buget",
        SENTENCE,
        unknown("retry_buget", "table", nearest="retry_budget"),
    ),
    ("connection = 5", "connection", "5", "a table"),
    ("[[connection]]", "connection", "[{}]", "a table"),
    ("policies = []", "policies", "[]", "a table"),
    ("[policies]\nx = 1", "policies.x", "1", "a table"),
    ('[targets]\n"a b" = "c"', 'targets."a b"', "'c'", "a table"),
    ("[[methods.x]]", "methods.x", "[{}]", "a table"),
    ("[conection]", "conection", SENTENCE, unknown("conection", "table", nearest="connection")),
    ("[method.x]", "method", SENTENCE, unknown("method", "table", nearest="methods")),
    (
        "jitter = 0.2",
        "jitter",
        SENTENCE,
        "unknown table 'jitter': expected one of: connection, targets, policies, methods, retry_budget, ledger",
    ),
]

UNREADABLE = {
    # The error for content that is not TOML, or not a configuration.
    "is not TOML: Invalid value (at line 2, column 10)": b"[connection]\njitter = \n",
    "is not TOML: Exceeds the limit (4300 digits)": b"a = " + b"1" * 5000,
    "is not UTF-8 (at line 2)": b'[connection]\n# \xe9\npreset = "grpc"',
    "is not UTF-8 (at line 1)": "[connection]\n".encode("utf-16"),
    "is nested too deeply": b"a = " + b"[" * 100_000,
    "is larger than 1000000 bytes": b"#" * 1_000_001,
}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backoff.toml"


def policy_of(file):
    return read_config(file).connect_policy().policy


def check_refused(file, key, value, allowed):
    """Check the whole error message, and that the error names the file and the key."""
    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value) == f"{file}: {allowed if value is SENTENCE else f'{key}={value}: expected {allowed}'}"
    assert (caught.value.path, caught.value.key) == (str(file), key)


def key_of(line):
    return line.partition(" = ")[0]


@pytest.mark.parametrize(("table", "line", "value"), BAD_VALUES)
def test_bad_value(file, table, line, value):
    """BP-4: every value is checked when the file is read; the error names the file, the key's path and the value."""
    file.write_text(f"[{table}]\n{line}\n")

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value).startswith(f"{file}: {table}.{key_of(line)}")
    assert f"={value}: expected " in str(caught.value)


@pytest.mark.parametrize(("table", "line", "value", "allowed"), BAD_NAMES)
def test_bad_name(file, table, line, value, allowed):
    """BP-4: the error for a misspelt name suggests the right one, or lists all of them."""
    file.write_text(f"[{table}]\n{line}\n")

    check_refused(file, f"{table}.{key_of(line)}", value, allowed)


@pytest.mark.parametrize(
    ("content", "key", "value", "allowed"), NOT_TOGETHER, ids=[row[0].replace("\n", " ") for row in NOT_TOGETHER]
)
def test_not_together(file, content, key, value, allowed):
    """BP-4: conflicting or misplaced settings are reported when the file is read, not when a channel is created."""
    file.write_text(content)

    check_refused(file, key, value, allowed)


@pytest.mark.parametrize("problem", UNREADABLE)
def test_unreadable(file, problem):
    """BP-4: if a file cannot be parsed, the error names the file and the line if known, and its `key` is None."""
    file.write_bytes(UNREADABLE[problem])

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value).partition(" for integer")[0] == f"{file}: {problem}"
    assert caught.value.key is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [("none.toml", "No such file or directory"), ("", "Is a directory"), ("a\0b", "embedded null byte")],
)
def test_no_file(tmp_path, name, problem):
    """BP-4: a missing file, a directory or a path that no file can have is an error; there are no defaults instead."""
    path = f"{tmp_path}/{name}"
    with pytest.raises(ConfigError) as caught:
        read_config(path)

    assert str(caught.value) == f"{path}: cannot be read: {problem}"
    assert caught.value.key is None


@pytest.fixture
def forbidden(file):
    """Return a file that this process may not read; a test that runs as root gives up its privileges meanwhile."""
    file.touch()
    file.chmod(stat.S_IWUSR)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield file
    os.seteuid(user)


def test_no_permission(forbidden):
    """BP-4: the error for a file without read permission says that permission was denied."""
    with pytest.raises(ConfigError) as caught:
        read_config(forbidden)

    assert str(caught.value) == f"{forbidden}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    "bad",
    ['[targets."b*"]\njitter = 7', "[policies.x]\ndelay = -1", '[methods."*"]\npreset = "x"', "[other]", "a", "\0"],
)
def test_whole_or_not_at_all(file, bad):
    """BP-4: one bad table makes the whole file invalid, including the settings in its other tables."""
    file.write_text(f'[connection]\njitter = 0.1\n[targets."a*"]\njitter = 0.3\n{bad}\n')

    with pytest.raises(ConfigError):
        read_config(file)
    with pytest.raises(ConfigError):
        read_options([("grpc_backoff.config", file)], target="a")


@pytest.mark.parametrize("content", ["", "\n# nothing\n", "[connection]\n"])
def test_nothing_said(file, content):
    """BP-3: a file without settings changes nothing."""
    file.write_text(content)

    assert policy_of(file) == CONNECT


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("initial_backoff = 0.5", ("grpc.initial_reconnect_backoff_ms", 500)),
        ("max_backoff = 30", ("grpc.max_reconnect_backoff_ms", 30_000)),
        ("max_backoff = 0.5", ("grpc.max_reconnect_backoff_ms", 500)),
        ("initial_backoff = 500.0", ("grpc.initial_reconnect_backoff_ms", 500_000)),
        ("min_connect_timeout = 7.5", ("grpc.min_reconnect_backoff_ms", 7500)),
        ("idle_timeout = 90", ("grpc.client_idle_timeout_ms", 90_000)),
        ("idle_timeout = 0.1", ("grpc.client_idle_timeout_ms", 100)),
        ("idle_timeout = inf", ("grpc.client_idle_timeout_ms", 2**31 - 1)),
        ("multiplier = 2", ("grpc_backoff.multiplier", 2)),
        ('max_backoff = "30s"', ("grpc.max_reconnect_backoff_ms", 30_000)),
        ('initial_backoff = "250ms"', ("grpc.initial_reconnect_backoff_ms", 250)),
        ('min_connect_timeout = "1.5m"', ("grpc.min_reconnect_backoff_ms", 90_000)),
        ('idle_timeout = "1h"', ("grpc.client_idle_timeout_ms", 3_600_000)),
        ("jitter = 0", ("grpc_backoff.jitter", 0)),
        ("jitter = 0.5", ("grpc_backoff.jitter", 0.5)),
        ('jitter = "none"', ("grpc_backoff.jitter", "none")),
        ('jitter = "full"', ("grpc_backoff.jitter", "full")),
        ('jitter = "equal"', ("grpc_backoff.jitter", "equal")),
        ('jitter = "additive(0.5)"', ("grpc_backoff.jitter", "additive(0.5)")),
        ('jitter = "scaled(0.5, 1.5)"', ("grpc_backoff.jitter", "scaled(0.5, 1.5)")),
        ('jitter = "proportional(0.1, then_cap)"', ("grpc_backoff.jitter", "proportional(0.1, then_cap)")),
        ("jitter_first = true", ("grpc_backoff.jitter_first", True)),
        ("stable_after = 5", ("grpc_backoff.stable_after", 5)),
        ('reconnect = "eager"', ("grpc_backoff.reconnect", "eager")),
        ("max_connections = 4", ("grpc_backoff.max_connections", 4)),
        ("streams_per_connection = 250", ("grpc_backoff.streams_per_connection", 250)),
        ('resolve_every = "1m"', ("grpc_backoff.resolve_every", 60)),
        ('quiet_after = "200ms"', ("grpc_backoff.quiet_after", 0.2)),
        ('answer_within = "3s"', ("grpc_backoff.answer_within", 3)),
        ("watch_network = true", ("grpc_backoff.watch_network", True)),
        ('min_resolve_interval = "5s"', ("grpc.dns_min_time_between_resolutions_ms", 5000)),
        *((f'preset = "{name}"', ("grpc_backoff.preset", name)) for name in RETRY),
    ],
)
def test_same_as_option(file, line, option):
    """BP-3: a setting in the file has the same effect as the corresponding channel option."""
    file.write_text(f"[connection]\n{line}\n")

    by_file, by_option = read_options([("grpc_backoff.config", file)]), read_options([option])

    assert (by_file.policy, by_file.pool, by_file.core) == (by_option.policy, by_option.pool, by_option.core)
    changed = (by_option.policy, by_option.pool) != (CONNECT, PoolPolicy())
    assert option == ("grpc_backoff.preset", "grpc") or changed


def test_every_option_is_compared():
    """BP-3: `test_same_as_option` covers every connection setting."""
    compared = {row[1][0] for row in test_same_as_option.pytestmark[0].args[1]}

    assert compared == {setting.option for setting in CONNECTING}


def test_never_idle(file):
    """CB-14: an infinite idle timeout means that the channel never becomes idle."""
    file.write_text("[connection]\nidle_timeout = inf\n")

    assert policy_of(file).idle_timeout == math.inf


def test_shorter_than_a_millisecond(file):
    """BP-3: the file can set times shorter than a millisecond; grpc's options cannot."""
    file.write_text("[connection]\ninitial_backoff = 0.0005\n")

    assert policy_of(file).initial_backoff == 0.0005


def test_byte_order_mark(file):
    """BP-4: a byte order mark, which some editors write at the start of a file, is ignored."""
    file.write_bytes(b"\xef\xbb\xbf[connection]\r\njitter = 0.5\r\n")

    assert policy_of(file).backoff.jitter == Proportional(0.5)


def test_relative_path(file, monkeypatch):
    """BP-4: a relative path is relative to the working directory, and errors show it as given."""
    monkeypatch.chdir(file.parent)
    file.write_text("[connection]\njitter = 7\n")

    with pytest.raises(ConfigError) as caught:
        read_config("backoff.toml")

    assert str(caught.value).startswith("backoff.toml: connection.jitter=7: expected ")


def test_a_table_that_never_applies(file):
    """BP-3: a table for targets that an earlier one matches as well causes a warning that names both."""
    file.write_text('[targets."*:443"]\n[targets."a:*"]\n[targets."a:443"]\njitter = 0\n')

    with pytest.warns(PolicyWarning) as caught:
        read_config(file)

    assert [str(warning.message) for warning in caught] == [
        f'{file}: targets."a:443" has no effect after targets."*:443", which matches the same targets'
    ]


def test_example_of_docstring(file):
    """BP-3: the example in the module's docstring is valid, and its `[connection]` contains the defaults."""
    from grpc_backoff.config import file as config

    file.write_text("\n".join(line.strip() for line in config.__doc__.partition("::")[2].splitlines()[:-2]))
    read = read_config(file)
    orders, standard = read.retry_policy("shop.Orders/Place").policy, RETRY["standard"]

    assert policy_of(file) == CONNECT
    assert read.connect_policy("a.example:443").policy.backoff.cap == 30.0
    assert orders == replace(standard, backoff=replace(standard.backoff, cap=10.0), max_attempts=3)


FILE = """
[connection]
max_backoff = "50s"

[targets."shop.example:443"]
preset = "careful"
initial_backoff = 4

[targets."*:443"]
max_backoff = "40s"
jitter = "full"

[policies.careful]
preset = "standard"
jitter = "equal"
max_attempts = 3

[policies.fail-fast]
preset = "careful"
delay = "50ms"

[methods."*"]
preset = "fixed"
retry = 1
delay = "250ms"

[methods."shop.Orders"]
preset = "fail-fast"

[methods."shop.Orders/Place"]
preset = "careful"
codes = ["ABORTED"]
timeout = "2s"
"""


@pytest.fixture
def config(file):
    file.write_text(FILE)
    return read_config(file)


@pytest.mark.parametrize(
    ("target", "backoff"),
    [
        ("", BackoffPolicy(Exponential(1.0, 1.6), 50.0, Proportional(0.2))),
        ("shop.example:80", BackoffPolicy(Exponential(1.0, 1.6), 50.0, Proportional(0.2))),
        ("a:443", BackoffPolicy(Exponential(1.0, 1.6), 40.0, Full())),
        ("shop.example:443", BackoffPolicy(Exponential(4.0, 2.0), 50.0, Equal())),
    ],
)
def test_targets(config, target, backoff):
    """BP-3: the most specific target table overrides `[connection]`, which overrides the preset."""
    assert config.connect_policy(target).policy == replace(CONNECT, backoff=backoff)


@pytest.mark.parametrize(
    ("method", "backoff", "limits"),
    [
        ("other.Service/Do", BackoffPolicy(Fixed(0.25), 30.0, NoJitter()), {"max_attempts": 2}),
        ("shop.Orders/List", BackoffPolicy(Exponential(0.05, 2.0), 30.0, Equal()), {"max_attempts": 3}),
        ("/shop.Orders/List", BackoffPolicy(Exponential(0.05, 2.0), 30.0, Equal()), {"max_attempts": 3}),
        (
            "shop.Orders/Place",
            BackoffPolicy(Exponential(1.0, 2.0), 30.0, Equal()),
            {"max_attempts": 3, "codes": ["ABORTED"], "timeout": 2.0},
        ),
    ],
)
def test_methods(config, method, backoff, limits):
    """BP-2: only the most specific table applies to a method: its own, its service's, or the one for all methods."""
    assert config.retry_policy(method).policy == replace(RETRY["standard"], backoff=backoff, **limits)


def test_no_methods(file):
    """RT-1: a method that no table covers has no policy, so calls to it are not retried."""
    file.write_text('[methods."shop.Orders"]\npreset = "standard"\n')

    assert read_config(file).retry_policy("shop.Carts/Add") is None


def test_origins(config, file):
    """BP-3: the origin of every value is recorded with table and key, even through a chain of inherited policies."""
    origins = {value.part: value.origin for value in config.retry_policy("shop.Orders/List").effective}

    assert origins == {
        "backoff": "preset standard",
        "delay": f"file {file}: policies.fail-fast.delay",
        "multiplier": "preset standard",
        "max_delay": "preset standard",
        "jitter": f"file {file}: policies.careful.jitter",
        "max_attempts": f"file {file}: policies.careful.max_attempts",
        **dict.fromkeys(("codes", "timeout", "deadline", "server_delay_jitter", "max_server_delay"), "preset standard"),
    }


def test_policies_by_name(config):
    """BP-3: the file's own policies and the presets can be looked up by name."""
    assert config.policy("fail-fast").policy == config.retry_policy("shop.Orders/List").policy
    assert config.policy("contention").policy == RETRY["contention"]
    with pytest.raises(OptionError, match="the name of a policy; did you mean 'careful'"):
        config.policy("carefull")


@pytest.mark.parametrize(
    ("table", "text", "cap"),
    [
        ("exponential", "retry: 5, delay: 1s, backoff: exponential", 45.0),
        ("exponential", "preset: exponential, retry: 5, delay: 1s", 45.0),
        ("exponential", "retry: 5, delay: 1s, backoff: exponential, max_delay: 9s", 9.0),
        ("exponential", "retry: 5, delay: 1s, backoff: linear", 30.0),
        ("exponential", "retry: 5, delay: 1s", 30.0),
        ("linear", "retry: 5, delay: 1s, backoff: linear", 45.0),
        ("fixed", "retry: 5, delay: 1s", 45.0),
        ("standard", "standard", 45.0),
        ("standard", "preset: mine, retry: 1", 45.0),
        ("standard", "aggressive", 10.0),
    ],
)
@pytest.mark.parametrize("also", ["", 'preset = "{table}"'])
def test_changed_presets(file, table, text, cap, also):
    """BP-3, seed 002: a table with the name of a preset changes it, and so the defaults of all policies of a kind."""
    file.write_text(f"""
        [policies.mine]
        preset = "standard"
        [policies.{table}]
        max_delay = 45
        {also.format(table=table)}
        """)
    config = read_config(file)

    assert read_retry("retry", text, config).backoff.cap == cap
    assert dict(config.sections())[f"policies.{table}"].policy.backoff.cap == 45.0


def test_changed_connect_preset(file):
    """BP-3: the preset of connections can be changed like any other."""
    file.write_text("[policies.grpc]\nmax_delay = 45")

    assert read_config(file).connect_policy().policy.backoff.cap == 45.0


def test_sections(config):
    """BP-3: `sections` returns every policy that the file describes, keyed by the path of its table, in file order."""
    sections = dict(config.sections())

    assert list(sections) == [
        "connection",
        'targets."shop.example:443"',
        'targets."*:443"',
        "policies.careful",
        "policies.fail-fast",
        'methods."*"',
        'methods."shop.Orders"',
        'methods."shop.Orders/Place"',
    ]
    assert sections['targets."*:443"'] == config.connect_policy("a:443")
    assert sections['methods."shop.Orders"'] == config.retry_policy("shop.Orders/List")


def test_every_setting_of_calls(file):
    """BP-2: one table can set every part of a retry policy."""
    file.write_text("""
        [policies.all]
        retry = 4
        delay = "100ms"
        backoff = "exponential"
        multiplier = 3
        max_exponent = 5
        max_delay = "1m"
        jitter = "additive(0.25)"
        timeout = 2
        deadline = "30s"
        codes = ["ABORTED", "UNAVAILABLE"]
        server_delay_jitter = 0
        max_server_delay = "1h"
        [policies.list]
        backoff = "steps"
        steps = ["100ms", 0.5, "2s"]
        multiplier = 1
        max_attempts = "unlimited"
    """)
    config = read_config(file)

    assert config.policy("all").policy == RetryPolicy(
        backoff=BackoffPolicy(Exponential(0.1, 3.0, 5), 60.0, Additive(0.25)),
        max_attempts=5,
        codes=frozenset({"ABORTED", "UNAVAILABLE"}),
        timeout=2.0,
        deadline=30.0,
        server_delay_jitter=0.0,
        max_server_delay=3600.0,
    )
    assert config.policy("list").policy.backoff == BackoffPolicy(Steps((0.1, 0.5, 2.0), 1.0), 30.0, NoJitter())
    assert config.policy("list").policy.max_attempts is None


@pytest.mark.parametrize("content", ["", "[retry_budget]\n"])
def test_no_budget(file, content):
    """RT-9: without a `[retry_budget]` table, there is no retry budget."""
    file.write_text(content)
    config = read_config(file)

    assert config.budget() is None
    assert "retry_budget" not in dict(config.sections())


def test_budget(file):
    """RT-9: `[retry_budget]` sets the budget of every target and is listed in the file's `sections`."""
    file.write_text("[retry_budget]\ntoken_ratio = 0.1\nmax_tokens = 100\n")
    config = read_config(file)

    assert config.budget().policy == RetryBudget(100.0, 0.1)
    assert {value.part: value.origin for value in config.budget().effective} == {
        "max_tokens": f"file {file}: retry_budget.max_tokens",
        "token_ratio": f"file {file}: retry_budget.token_ratio",
    }
    assert dict(config.sections())["retry_budget"] == config.budget()


def test_no_effect(file):
    """BP-2: a growth setting without a delay causes a warning that names the file and the key."""
    file.write_text('[methods."*"]\nretry = 3\nbackoff = "exponential"\n')

    with pytest.warns(PolicyWarning) as caught:
        config = read_config(file)

    assert [str(warning.message) for warning in caught] == [
        f'{file}: methods."*".backoff has no effect without a delay'
    ]
    assert caught[0].filename == __file__
    assert caught[0].lineno == test_no_effect.__code__.co_firstlineno + 5
    assert config.retry_policy("a.B/C").policy.bounds(3) == (0.0, 0.0)


def test_names():
    """BP-3: the names of the environment variable and of the tables are fixed."""
    assert ENVIRONMENT_VARIABLE == "GRPC_BACKOFF_CONFIG"
    assert TABLES == ("connection", "targets", "policies", "methods", "retry_budget", "ledger")


def test_ledger(file):
    """LG-14: the table `[ledger]` sets a ledger's limits and times, and the origin of each value is recorded."""
    file.write_text(
        '[policies.careful]\npreset = "standard"\n[ledger]\npolicy = "careful"\nlease = "1m"\nmetadata = ["x-tenant"]\n'
    )

    resolved = read_config(file).ledger_settings()

    assert (resolved.policy.policy, resolved.policy.lease, resolved.policy.metadata) == ("careful", 60.0, ("x-tenant",))
    origins = {value.part: value.origin for value in resolved.effective}
    assert (origins["lease"], origins["keep"]) == (f"file {file}: ledger.lease", "default")


@pytest.mark.parametrize(
    ("line", "value", "allowed"),
    [
        ("max_rows = 0", "0", "a whole number of at least 1"),
        ("lease = 0", "0", 'a finite number of seconds above 0, or a string such as "500ms", "1s" or "2m"'),
        ('metadata = ["X"]', "'X'", "a metadata key made up of lower-case letters, digits, '-', '_' and '.'"),
        (
            'metadata = ["authorization"]',
            "'authorization'",
            "a key that does not hold credentials, because credentials are never stored",
        ),
        ("policy = 1", "1", "the name of a policy, or a policy string"),
    ],
)
def test_wrong_ledger(file, line, value, allowed):
    """LG-11, LG-14: wrong values, and metadata keys for credentials, are rejected when the file is read."""
    file.write_text(f"[ledger]\n{line}\n")

    check_refused(file, f"ledger.{line.split(' ')[0]}", value, allowed)


def test_ledger_with_an_unknown_policy(file):
    """LG-14: an unknown policy in `[ledger]` is reported when the file is read."""
    file.write_text('[ledger]\npolicy = "backgroud"\n')

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert caught.value.key == "ledger.policy"
    assert "did you mean 'background'?" in str(caught.value)
