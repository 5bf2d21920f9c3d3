"""The TOML file: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import math
import os
import stat
from dataclasses import replace

import pytest

from grpc_backoff.errors import ConfigError
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.config import ENVIRONMENT_VARIABLE, TABLES, read_config
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.options import read_options
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.policy.settings import connect_policy

SECONDS = "a finite number of seconds above 0 is"
MULTIPLIER = "a finite number of at least 1 is"
JITTER = "a number from 0 to below 1 is"
STABLE = "a finite number of seconds of at least 0 is"
IDLE = "a number of seconds from 0 to inf (never) is"
FLAG = "True or False (or 1 or 0) is"
TABLE = "no table has this name, choose from: connection"


def meant(key):
    return f"no setting has this name, did you mean {key!r}?"


BAD_VALUES = [
    ("initial_backoff = 0", "initial_backoff = 0 is not allowed; " + SECONDS),
    ("initial_backoff = -1.5", "initial_backoff = -1.5 is not allowed; " + SECONDS),
    ('initial_backoff = "1s"', "initial_backoff = '1s' is not allowed; " + SECONDS),
    ("max_backoff = inf", "max_backoff = inf is not allowed; " + SECONDS),
    ("max_backoff = nan", "max_backoff = nan is not allowed; " + SECONDS),
    ("min_connect_timeout = true", "min_connect_timeout = True is not allowed; " + SECONDS),
    ("min_connect_timeout = []", "min_connect_timeout = [] is not allowed; " + SECONDS),
    ("idle_timeout = -1", "idle_timeout = -1 is not allowed; " + IDLE),
    ("idle_timeout = nan", "idle_timeout = nan is not allowed; " + IDLE),
    ("multiplier = 0.5", "multiplier = 0.5 is not allowed; " + MULTIPLIER),
    ("multiplier = inf", "multiplier = inf is not allowed; " + MULTIPLIER),
    ("jitter = 1.0", "jitter = 1.0 is not allowed; " + JITTER),
    ("jitter = -0.2", "jitter = -0.2 is not allowed; " + JITTER),
    ("jitter = {a = 1}", "jitter = {'a': 1} is not allowed; " + JITTER),
    ('jitter_first = "true"', "jitter_first = 'true' is not allowed; " + FLAG),
    ("stable_after = -1", "stable_after = -1 is not allowed; " + STABLE),
    ("stable_after = 12:00:00", "stable_after = datetime.time(12, 0) is not allowed; " + STABLE),
    ('reconnect = "never"', "reconnect = 'never' is not allowed; 'lazy' or 'eager' is"),
    ('preset = "steps"', "preset = 'steps' is not allowed; 'grpc' is"),
    ("preset = 4", "preset = 4 is not allowed; 'grpc' is"),
    (
        "initial_backoff = 5\nmax_backoff = 4.5",
        "max_backoff = 4.5 is not allowed; at least connection.initial_backoff (5) is",
    ),
    ("multiplyer = 2", "multiplyer = 2 is not allowed; " + meant("connection.multiplier")),
    ("max_reconnect_backoff_ms = 9", "max_reconnect_backoff_ms = 9 is not allowed; " + meant("connection.max_backoff")),
    (
        "min_reconnect_backoff_ms = 9",
        "min_reconnect_backoff_ms = 9 is not allowed; " + meant("connection.min_connect_timeout"),
    ),
    ("Jitter = 0", "Jitter = 0 is not allowed; " + meant("connection.jitter")),
    (
        "xyz = 0",
        (
            "xyz = 0 is not allowed; no setting has this name, choose from: "
            "connection.preset, connection.initial_backoff, connection.max_backoff, connection.min_connect_timeout, "
            "connection.idle_timeout, connection.multiplier, "
            "connection.jitter, connection.jitter_first, connection.stable_after, connection.reconnect"
        ),
    ),
]

BAD_FILES = [
    (b"connection = 5", "connection = 5 is not allowed; a table is"),
    (b"[[connection]]", "connection = [{}] is not allowed; a table is"),
    (b"[conection]", "conection = {} is not allowed; no table has this name, did you mean 'connection'?"),
    (b"[policies.x]", "policies = {'x': {}} is not allowed; " + TABLE),
    (b"jitter = 0.2", "jitter = 0.2 is not allowed; " + TABLE),
    (
        b"\n[connection\njitter = 1",
        "is not TOML: Expected ']' at the end of a table declaration (at line 2, column 12)",
    ),
    (b"[connection]\njitter = 0.1\njitter = 0.2\n", "is not TOML: Cannot overwrite a value (at line 3, column 13)"),
    (b"[connection]\njitter = \n", "is not TOML: Invalid value (at line 2, column 10)"),
    (b'[connection]\n# \xe9\npreset = "grpc"', "is not UTF-8 (at line 2)"),
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backoff.toml"


def policy_of(file):
    return connect_policy([read_config(file).connection])


@pytest.mark.parametrize(("line", "message"), BAD_VALUES, ids=[line for line, _ in BAD_VALUES])
def test_bad_value(file, line, message):
    """BP-4: an error names the file, the key path, the value and what is allowed, or the key that was meant."""
    file.write_text(f"[connection]\n{line}\n")

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value) == f"{file}: connection.{message}"
    assert (caught.value.path, caught.value.key) == (str(file), "connection." + message.partition(" ")[0])


@pytest.mark.parametrize(("content", "message"), BAD_FILES, ids=[message[:40] for _, message in BAD_FILES])
def test_bad_file(file, content, message):
    """BP-4: a file that is wrong as a whole is told with its name, and with the line where it is no TOML."""
    file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value) == f"{file}: {message}"


@pytest.mark.parametrize("content", ["a = " + "[" * 100_000, "a = " + "1" * 5000])
def test_too_much(file, content):
    """BP-4: what the parser itself cannot bear is an error of the file as well."""
    file.write_text(content)

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value).startswith(f"{file}: is ")


def test_missing(file):
    """BP-4: a file that is not there is an error, not a default."""
    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value) == f"{file}: cannot be read: No such file or directory"
    assert caught.value.key is None


def test_directory(tmp_path):
    """BP-4: a directory is not a file."""
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)

    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


@pytest.fixture
def forbidden(file):
    """Return a file that may not be read, not by root either, who is nobody in particular for the while."""
    file.touch()
    file.chmod(stat.S_IWUSR)
    user = os.geteuid()
    os.seteuid(user or 65534)
    yield file
    os.seteuid(user)


def test_no_permission(forbidden):
    """BP-4: a file that may not be read is told as that."""
    with pytest.raises(ConfigError) as caught:
        read_config(forbidden)

    assert str(caught.value) == f"{forbidden}: cannot be read: Permission denied"


def test_permission_denied(file, monkeypatch):
    """BP-4: what the system says of a file that it does not give is passed on."""

    def denied(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)

    with pytest.raises(ConfigError) as caught:
        read_config(file)

    assert str(caught.value) == f"{file}: cannot be read: Permission denied"


def test_impossible_path():
    """BP-4: a path that no file can have is the same kind of error."""
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        read_config("a\0b")


@pytest.mark.parametrize("content", ["", "\n# nothing\n", "[connection]\n"])
def test_nothing_said(file, content):
    """BP-3: a file that says nothing changes nothing."""
    file.write_text(content)

    assert policy_of(file) == CONNECT


def test_every_setting(file):
    """BP-3: one file sets everything, in seconds."""
    file.write_text("""
        [connection]
        preset = "grpc"
        initial_backoff = 0.25
        max_backoff = 8
        min_connect_timeout = 1.5
        idle_timeout = 60
        multiplier = 3
        jitter = 0.5
        jitter_first = true
        stable_after = 2
        reconnect = "eager"
    """)

    assert policy_of(file) == replace(
        CONNECT,
        backoff=BackoffPolicy(Exponential(0.25, 3.0), 8.0, Proportional(0.5)),
        min_connect_timeout=1.5,
        idle_timeout=60.0,
        jitter_first=True,
        stable_after=2.0,
        reconnect=Reconnect.EAGER,
    )


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
        ("jitter = 0", ("grpc_backoff.jitter", 0)),
        ("jitter_first = true", ("grpc_backoff.jitter_first", True)),
        ("stable_after = 5", ("grpc_backoff.stable_after", 5)),
        ('reconnect = "eager"', ("grpc_backoff.reconnect", "eager")),
        ('preset = "grpc"', ("grpc_backoff.preset", "grpc")),
    ],
)
def test_same_as_option(file, line, option):
    """BP-3: a setting of the file and the option of the same meaning give the same policy."""
    file.write_text(f"[connection]\n{line}\n")

    by_file, told = read_options([("grpc_backoff.config", file)])

    assert (by_file, told) == read_options([option])


def test_never_idle(file):
    """CB-14: an infinite idle timeout is never."""
    file.write_text("[connection]\nidle_timeout = inf\n")

    assert policy_of(file).idle_timeout == math.inf


def test_shorter_than_a_millisecond(file):
    """BP-3: the file is not bound to grpc's milliseconds."""
    file.write_text("[connection]\ninitial_backoff = 0.0005\n")

    assert policy_of(file).initial_backoff == 0.0005


def test_byte_order_mark(file):
    """BP-4: the mark with which some editors begin a file does no harm."""
    file.write_bytes(b"\xef\xbb\xbf[connection]\r\njitter = 0.5\r\n")

    assert read_config(file).connection == {"jitter": 0.5}


def test_relative_path(file, monkeypatch):
    """BP-4: a relative path counts from the working directory, and errors name it as it was given."""
    monkeypatch.chdir(file.parent)
    file.write_text("[connection]\njitter = 7\n")

    with pytest.raises(ConfigError) as caught:
        read_config("backoff.toml")

    assert str(caught.value) == f"backoff.toml: connection.jitter = 7 is not allowed; {JITTER}"


def test_example_of_docstring(file):
    """BP-3: the example in the module's docstring is right, and says what holds without a file."""
    from grpc_backoff.policy import config

    file.write_text("\n".join(line.strip() for line in config.__doc__.partition("::")[2].splitlines()[:-2]))

    assert policy_of(file) == CONNECT


def test_names():
    """BP-3: the names that others rely on."""
    assert (ENVIRONMENT_VARIABLE, TABLES) == ("GRPC_BACKOFF_CONFIG", ("connection",))
