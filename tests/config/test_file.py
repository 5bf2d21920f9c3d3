"""The TOML file: its settings, and the errors for invalid files."""

from __future__ import annotations

import os
import stat
import warnings
from dataclasses import replace

import pytest

from grpc_backoff.config.file import read_config
from grpc_backoff.config.methods import read_retry
from grpc_backoff.config.options import read_options
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.errors import ConfigError, OptionError, PolicyWarning
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.jitter import Equal, Full, NoJitter, Proportional
from grpc_backoff.policy.pooling import PoolPolicy
from grpc_backoff.policy.presets import CONNECT, RETRY_PRESETS
from grpc_backoff.policy.retry import RETRYING
from grpc_backoff.policy.strategy import Exponential, Fixed, Steps
from tests.texts import begins, exactly

TIME = 'a finite number of seconds above 0, or a string such as "500ms", "1s" or "2m"'
METHOD = "'package.Service/Method', 'package.Service' or '*'"
PRESETS = "grpc, contention, steps, standard, aggressive, conservative, background, durable, fixed, linear, exponential"

# The errors below are texts in which `{}` stands for the key at fault. A text that begins with "=" follows the key.
SAME = "'{first}' and {{}} set the same value: give only one of them"
HAS_ITS_OWN = "expected 'none', because decorrelated backoff has its own jitter"
METADATA_KEY = "a metadata key made up of lower-case letters, digits, '-', '_' and '.'"
NEVER_STORED = (
    "expected a key that does not hold credentials, which are never stored; the channel that delivers can send them"
)
GROWING = "exponential", "steps"
INHERITED = (
    "codes",
    "timeout",
    "deadline",
    "server_delay_jitter",
    "max_server_delay",
    "never_ran_only",
)
FROM_A_DELAY = "fixed", "linear", "exponential", "decorrelated"


def meant(nearest, kind="setting"):
    return f"unknown {kind} {{}}: did you mean {nearest!r}?"


def listed(keys, kind="setting"):
    return f"unknown {kind} {{}}: expected one of: {keys}"


def names_of(settings):
    return ", ".join(setting.name for setting in settings)


def only_with(*backoffs, given):
    return f"{{}} applies only with backoff {' or '.join(map(repr, backoffs))}, not with {given!r}"


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

# A table, lines for it, and the error, which is about the last line: a misspelt name, or values that are valid on their
# own but not together.
BAD_LINES = [
    ("connection", 'preset = "stepps"', "='stepps': expected the name of a policy; did you mean 'steps'?"),
    ("connection", 'preset = "xyz"', f"='xyz': expected one of: {PRESETS}"),
    ("connection", 'preset = "linear"', "='linear' requires 'connection.initial_backoff' as well"),
    ("targets.x", 'preset = "fixed"', "='fixed' requires 'targets.x.initial_backoff' as well"),
    ("connection", "multiplyer = 2", meant("connection.multiplier")),
    ("connection", "max_reconnect_backoff_ms = 9", meant("connection.max_backoff")),
    ("connection", "xyz = 0", listed(names_of(CONNECTING))),
    ('methods."*"', 'codes = ["unavailible"]', "='unavailible': expected a status code; did you mean 'UNAVAILABLE'?"),
    ('methods."*"', "retries = 3", meant('methods."*".retry')),
    ('methods."*"', '"max delay" = 3', meant('methods."*".max_delay')),
    ('methods."*"', "xyz = 0", listed(names_of(RETRYING))),
    ("retry_budget", "maxTokens = 10", meant("retry_budget.max_tokens")),
    ("retry_budget", "xyz = 1", listed(names_of(BUDGETING))),
    ("retry_budget", "max_tokens = 10", "{} requires 'token_ratio' as well"),
    ("retry_budget", "token_ratio = 0.1", "{} requires 'max_tokens' as well"),
    ("ledger", "max_rows = 0", "=0: expected a whole number of at least 1"),
    ("ledger", "lease = 0", f"=0: expected {TIME}"),
    ("ledger", 'metadata = ["X"]', f"='X': expected {METADATA_KEY}"),
    ("ledger", 'metadata = ["authorization"]', f"='authorization': {NEVER_STORED}"),
    ("ledger", "policy = 1", "=1: expected the name of a policy, or a policy string"),
    ("ledger", 'policy = "backgroud"', "='backgroud': expected the name of a policy; did you mean 'background'?"),
    ("connection", "initial_backoff = 5\nmax_backoff = 4.5", "=4.5: expected at least connection.initial_backoff (5)"),
    ("connection", 'preset = "steps"\ninitial_backoff = 3', only_with(*FROM_A_DELAY, given="steps")),
    (
        "targets.x",
        'initial_backoff = "5s"\nmax_backoff = "4500ms"',
        "='4500ms': expected at least targets.x.initial_backoff (5s)",
    ),
    ("policies.x", "delay = 5\nmax_delay = 4", "=4: expected at least policies.x.delay (5)"),
    ("policies.x", "retry = 5\nmax_attempts = 6", SAME.format(first="policies.x.retry")),
    ('methods."*"', "max_attempts = 6\nretry = 5", SAME.format(first='methods."*".max_attempts')),
    ("policies.x", 'delay = 1\nbackoff = "fixed"\nmultiplier = 2', only_with(*GROWING, given="fixed")),
    ("policies.x", "delay = 1\nmultiplier = 2", only_with(*GROWING, given="fixed")),
    ("policies.x", 'delay = 1\nbackoff = "linear"\nmax_exponent = 2', only_with("exponential", given="linear")),
    ("policies.x", 'delay = 1\nbackoff = "exponential"\nsteps = [1]', only_with("steps", given="exponential")),
    ("policies.x", 'preset = "steps"\ndelay = 3', only_with(*FROM_A_DELAY, given="steps")),
    ("policies.x", 'delay = 1\nbackoff = "decorrelated"\njitter = "full"', f"='full': {HAS_ITS_OWN}"),
    ("policies.x", 'backoff = "steps"', "='steps' requires 'steps' as well"),
    ("policies.x", 'preset = "y"', f"='y': expected one of: x, {PRESETS}"),
    ("policies.x", 'preset = "x"', "{} makes a policy inherit from itself: x -> x"),
]

# Files, the key at fault, and the error.
BAD_FILES = [
    (
        '[policies.x]\ndelay = 1\nbackoff = "decorrelated"\n[methods."*"]\npreset = "x"\njitter = 0.2',
        'methods."*".jitter',
        f"=0.2: {HAS_ITS_OWN}",
    ),
    ("[policies.x]\nsteps = [1, 0]", "policies.x.steps[1]", f"=0: expected {TIME}"),
    ('[policies.x]\nsteps = "1s 2"\n[policies.y]\nsteps = "1s 2x"', "policies.y.steps[1]", f"='2x': expected {TIME}"),
    (
        '[policies.standard]\npreset = "x"\n[policies.x]\npreset = "standard"',
        "policies.x.preset",
        "{} makes a policy inherit from itself: standard -> x -> standard",
    ),
    ('[methods."a/b/c"]', 'methods."a/b/c"', f"='a/b/c': expected {METHOD}"),
    ('[methods."/a.B/C"]', 'methods."/a.B/C"', f"='/a.B/C': expected {METHOD}"),
    ('[methods."a.B/*"]', 'methods."a.B/*"', f"='a.B/*': expected {METHOD}"),
    ("[methods.5]", 'methods."5"', f"='5': expected {METHOD}"),
    ('[methods.""]', 'methods.""', f"='': expected {METHOD}"),
    ("retry_budget = 5", "retry_budget", "=5: expected a table"),
    ("[[retry_budget]]", "retry_budget", "=[{}]: expected a table"),
    ("[retry_budget.x]", "retry_budget.x", listed(names_of(BUDGETING))),
    ("[retry_buget]\nmax_tokens = 10", "retry_buget", meant("retry_budget", "table")),
    ("connection = 5", "connection", "=5: expected a table"),
    ("[[connection]]", "connection", "=[{}]: expected a table"),
    ("policies = []", "policies", "=[]: expected a table"),
    ("[policies]\nx = 1", "policies.x", "=1: expected a table"),
    ('[targets]\n"a b" = "c"', 'targets."a b"', "='c': expected a table"),
    ("[[methods.x]]", "methods.x", "=[{}]: expected a table"),
    ("[conection]", "conection", meant("connection", "table")),
    ("[method.x]", "method", meant("methods", "table")),
    ("jitter = 0.2", "jitter", listed("connection, targets, policies, methods, retry_budget, ledger", "table")),
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


@pytest.mark.parametrize(
    ("content", "key", "text"),
    [(f"[{table}]\n{lines}\n", f"{table}.{key_of(lines.splitlines()[-1])}", text) for table, lines, text in BAD_LINES]
    + BAD_FILES,
)
def test_bad_file(file, content, key, text):
    """BP-4, LG-11, LG-14: misspelt, misplaced and conflicting settings are reported when the file is read.

    The error names the file and the key. For a misspelt name, it suggests the right one, or lists all of them.
    """
    file.write_text(content)
    said = key + text if text.startswith("=") else text.format(repr(key))

    with pytest.raises(ConfigError, match=exactly(f"{file}: {said}")) as caught:
        read_config(file)

    assert (caught.value.path, caught.value.key) == (str(file), key)


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
    with pytest.raises(ConfigError, match=exactly(f"{path}: cannot be read: {problem}")) as caught:
        read_config(path)

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
    with pytest.raises(ConfigError, match=exactly(f"{forbidden}: cannot be read: Permission denied")):
        read_config(forbidden)


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


@pytest.mark.parametrize(
    ("content", "change"),
    [
        *((nothing, {}) for nothing in (b"", b"\n# nothing\n", b"[connection]\n")),
        # A byte order mark, which some editors write at the start of a file, is ignored.
        (b"\xef\xbb\xbf[connection]\r\njitter = 0.5\r\n", {"jitter": Proportional(0.5)}),
        # Unlike grpc's options, the file can set times shorter than a millisecond.
        (b"[connection]\ninitial_backoff = 0.0005\n", {"strategy": Exponential(0.0005, 1.6)}),
    ],
)
def test_only_what_it_says(file, content, change):
    """BP-3, BP-4: a file changes exactly the settings that it has."""
    file.write_bytes(content)

    assert policy_of(file) == replace(CONNECT, backoff=replace(CONNECT.backoff, **change))


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
        *((f'preset = "{name}"', ("grpc_backoff.preset", name)) for name in RETRY_PRESETS),
    ],
)
def test_same_as_option(file, line, option):
    """BP-3: a setting in the file has the same effect as the corresponding channel option."""
    file.write_text(f"[connection]\n{line}\n")

    by_file, by_option = read_options([("grpc_backoff.config", file)]), read_options([option])

    assert (by_file.policy, by_file.pooling, by_file.core_options) == (
        by_option.policy,
        by_option.pooling,
        by_option.core_options,
    )
    changed = (by_option.policy, by_option.pooling) != (CONNECT, PoolPolicy())
    assert option == ("grpc_backoff.preset", "grpc") or changed


def test_every_option_is_compared():
    """BP-3: `test_same_as_option` covers every connection setting."""
    compared = {row[1][0] for row in test_same_as_option.pytestmark[0].args[1]}

    assert compared == {setting.option for setting in CONNECTING}


def test_relative_path(file, monkeypatch):
    """BP-4: a relative path is relative to the working directory, and errors show it as given."""
    monkeypatch.chdir(file.parent)
    file.write_text("[connection]\njitter = 7\n")

    with pytest.raises(ConfigError, match=begins("backoff.toml: connection.jitter=7: expected ")):
        read_config("backoff.toml")


@pytest.mark.parametrize(
    ("content", "remark"),
    [
        (
            '[targets."*:443"]\n[targets."a:*"]\n[targets."a:443"]\njitter = 0',
            'targets."a:443" has no effect after targets."*:443", which matches the same targets',
        ),
        ('[methods."*"]\nretry = 3\nbackoff = "linear"', 'methods."*".backoff has no effect without a delay'),
        (
            '[policies.fixed]\nmax_delay = "2s"\n[methods."*"]\nretry = 3\ndelay = "45s"\njitter = "none"',
            'methods."*".delay=45s: no wait is longer than policies.fixed.max_delay (2s)',
        ),
    ],
)
def test_no_effect(file, content, remark):
    """BP-2, BP-3: a table or setting without effect causes a warning that names the file and points to the caller."""
    file.write_text(content)

    with pytest.warns(PolicyWarning, match=exactly(f"{file}: {remark}")) as caught:
        read_config(file)

    line = test_no_effect.__code__.co_firstlineno + 19
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


ADVICE = 'without jitter: clients that fail together retry together; add jitter = "full", or jitter = "none" if that'


@pytest.mark.parametrize(
    ("content", "tables"),
    [
        ('[policies.batch]\nretry = 5\ndelay = "1s"', ["policies.batch"]),
        ('[policies.batch]\nretry = 5\ndelay = "1s"\n[methods."*"]\npreset = "batch"', ["policies.batch"]),
        ('[methods."a.B/C"]\nretry = 5\ndelay = "1s"\nbackoff = "linear"', ['methods."a.B/C"']),
        (
            '[policies.a]\nretry = 2\ndelay = "1s"\n[methods."*"]\nretry = 2\ndelay = "1s"',
            ['methods."*"', "policies.a"],
        ),
        ('[policies.batch]\nretry = 5\ndelay = "1s"\njitter = "none"', []),
        ('[policies.batch]\nretry = 5\ndelay = "1s"\nbackoff = "decorrelated"', []),
        ('[policies.batch]\npreset = "standard"\nretry = 2', []),
        ("[policies.standard]\nretry = 2", []),
        ('[policies.batch]\ndelay = "1s"', []),
        ('[methods."*"]\nhedge = "10ms"\nattempts = 2', []),
    ],
)
def test_tables_without_jitter(file, content, tables):
    """BP-2: each table whose waits after UNAVAILABLE have no jitter causes one warning, where the file is read."""
    file.write_text(content)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_config(file)

    assert [str(each.message).partition(ADVICE)[0] for each in caught] == [f"{file}: {table} " for table in tables]
    assert {each.filename for each in caught} <= {__file__}


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
    assert config.retry_policy(method).policy == replace(RETRY_PRESETS["standard"], backoff=backoff, **limits)


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
        **dict.fromkeys(INHERITED, "preset standard"),
    }


def test_policies_by_name(config):
    """BP-3: the file's own policies and the presets can be looked up by name."""
    assert config.policy("fail-fast").policy == config.retry_policy("shop.Orders/List").policy
    assert config.policy("contention").policy == RETRY_PRESETS["contention"]
    with pytest.raises(OptionError, match="the name of a policy; did you mean 'careful'"):
        config.policy("carefull")


@pytest.mark.filterwarnings("ignore::grpc_backoff.PolicyWarning")
@pytest.mark.parametrize(
    ("text", "wait"),
    [
        *((f"retry: 3, delay: 45s, backoff: {each}", 2.0) for each in ("fixed", "linear", "exponential")),
        ("retry: 3, delay: 1s, max_delay: 90s, backoff: linear", 3.0),
        ("preset: mine, delay: 45s, jitter: none", 2.0),
        ("preset: slow", 2.0),
        ("preset: slow, max_delay: 50s", 45.0),
        ("preset: background, delay: 45s, jitter: none", 60.0),
    ],
)
def test_a_maximum_in_the_file(file, text, wait):
    """BP-3: a maximum in the file limits a longer delay, whether a policy string or a table of the file sets it."""
    kinds = "".join(f"[policies.{each}]\nmax_delay = 2\n" for each in ("fixed", "linear", "exponential"))
    mine = '[policies.mine]\npreset = "standard"\nmax_delay = 2\n[policies.slow]\nretry = 3\ndelay = 45\n'
    file.write_text(kinds + mine)

    assert read_retry("retry", text, read_config(file)).nominal(3) == wait


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


def test_lists(file):
    """BP-2: unlike a policy string, a table may write waits and codes as lists."""
    file.write_text("""
        [policies.x]
        backoff = "steps"
        steps = ["100ms", 0.5, "2s"]
        multiplier = 1
        max_attempts = "unlimited"
        codes = ["ABORTED", "UNAVAILABLE"]
    """)

    assert read_config(file).policy("x").policy == replace(
        RETRY_PRESETS["standard"],
        backoff=BackoffPolicy(Steps((0.1, 0.5, 2.0), 1.0), 30.0, NoJitter()),
        max_attempts=None,
        codes={"ABORTED", "UNAVAILABLE"},
    )


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
    assert {value.part: value.origin for value in config.retry_budget.effective} == {
        "max_tokens": f"file {file}: retry_budget.max_tokens",
        "token_ratio": f"file {file}: retry_budget.token_ratio",
    }
    assert dict(config.sections())["retry_budget"] == config.retry_budget


def test_ledger(file):
    """LG-14: the table `[ledger]` sets a ledger's limits and times, and the origin of each value is recorded."""
    file.write_text(
        '[policies.careful]\npreset = "standard"\n[ledger]\npolicy = "careful"\nlease = "1m"\nmetadata = ["x-tenant"]\n'
    )

    resolved = read_config(file).ledger_settings()

    assert (resolved.policy.policy, resolved.policy.lease, resolved.policy.metadata) == ("careful", 60.0, ("x-tenant",))
    origins = {value.part: value.origin for value in resolved.effective}
    assert (origins["lease"], origins["keep"]) == (f"file {file}: ledger.lease", "default")
