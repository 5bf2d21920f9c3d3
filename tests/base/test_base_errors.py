"""The errors that load no grpc: their messages, their parts, and pickling."""

from __future__ import annotations

import pickle
import traceback

import pytest

from grpc_backoff.base.base_errors import (
    ConfigError,
    ConnectError,
    IllegalTransition,
    MissingExtra,
    OptionError,
    kind_of,
    near_miss,
    unknown,
)
from grpc_backoff.config.file import read_config
from grpc_backoff.decide.connections.events import Failure, Stage

PASSWORD = "hunter2"
KEYS = {"jitter": "grpc_backoff.jitter", "multiplier": "grpc_backoff.multiplier"}
FAILURE = Failure(Stage.TLS, "certificate has expired")

MESSAGES = [
    (
        OptionError("grpc_backoff.jitter", 1.5, "a number between 0 (inclusive) and 1 (exclusive)"),
        "grpc_backoff.jitter=1.5: expected a number between 0 (inclusive) and 1 (exclusive)",
    ),
    (ConfigError("a.toml", "is not TOML"), "a.toml: is not TOML"),
    (
        ConfigError("a.toml", "connection.jitter=2: expected a number", "connection.jitter"),
        "a.toml: connection.jitter=2: expected a number",
    ),
    (ConnectError(FAILURE), "tls: certificate has expired"),
    (IllegalTransition("TimerFired in phase IDLE"), "TimerFired in phase IDLE"),
    (
        MissingExtra("cli", "the demo"),
        "the demo needs the extra 'cli': pip install 'grpc-backoff[cli]', or '.[cli]' in a checkout",
    ),
]


@pytest.mark.parametrize(("error", "message"), MESSAGES, ids=[type(error).__name__ for error, _ in MESSAGES])
def test_message(error, message):
    """CH-10: an error's message says in one line what is wrong."""
    assert str(error) == message


@pytest.mark.parametrize("error", [error for error, _ in MESSAGES], ids=lambda error: type(error).__name__)
def test_pickle(error):
    """An error survives pickling unchanged."""
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_attributes():
    """CH-10: the parts of a message are attributes, so applications need not parse it."""
    option = OptionError("key", 1, "two")
    config = ConfigError("a.toml", "is bad", "connection.x")

    assert (option.key, option.value, option.allowed, option.meant) == ("key", 1, "two", None)
    assert (config.path, config.problem, config.key) == ("a.toml", "is bad", "connection.x")
    assert ConnectError(FAILURE).failure is FAILURE
    assert MissingExtra("cli", "the demo").extra == "cli"


def test_suggestion():
    """CH-10: if a key was probably misspelt, the message ends with a suggestion, just as a user has to write it."""
    value = OptionError("retry", "standrad", "the name of a policy", "standard")
    error = unknown("option", "grpc_backoff.jiter", 0.1, "jiter", KEYS)

    assert str(value) == "retry='standrad': expected the name of a policy; did you mean 'standard'?"
    assert error.allowed == "one of: grpc_backoff.jitter, grpc_backoff.multiplier"
    assert error.meant == "grpc_backoff.jitter"
    assert str(error) == "unknown option 'grpc_backoff.jiter': did you mean 'grpc_backoff.jitter'?"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("word", ["jiter", "Jitter", "jitterr", "JITTER"])
def test_near_miss(word):
    """CH-10: the most similar key is found, whether it is written in upper or lower case."""
    assert near_miss(word, KEYS) == "grpc_backoff.jitter"


def test_nothing_is_near():
    """CH-10: if no key is similar, the error lists all keys, each once."""
    assert near_miss("timeout", KEYS) is None
    error = unknown("option", "timeout", 1, "timeout", KEYS | {"factor": "grpc_backoff.multiplier"})
    assert str(error) == "unknown option 'timeout': expected one of: grpc_backoff.jitter, grpc_backoff.multiplier"
    assert (error.key, error.value, error.meant) == ("timeout", 1, None)


@pytest.mark.parametrize(("value", "kind"), [(None, "None"), ("secret", "<str>"), (b"secret", "<bytes>")])
def test_kinds(value, kind):
    """CH-10, RT-11: of a value that may be secret, an error shows the type, or that there is none."""
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:hunter2@proxy:3128", "'http://me:***@proxy:3128'"),
        ("http://:hunter2@proxy", "'http://:***@proxy'"),
        ("me:hunter2@proxy:3128", "'me:***@proxy:3128'"),
        ("https://me:hunt@er2@proxy/path", "'https://me:***@proxy/path'"),
        ("https://me:hunt/er2@proxy", "'https://me:***@proxy'"),
        (b"http://me:hunter2@proxy", "b'http://me:***@proxy'"),
        (["http://me:hunter2@a", "http://b:1"], "['http://me:***@a', 'http://b:1']"),
        ("http://me:hunter2" + 100 * "x" + "@proxy", "'http://me:***@proxy'"),
        ("dns:///[::1]:50051", "'dns:///[::1]:50051'"),
        ("https://me@proxy:1", "'https://me@proxy:1'"),
    ],
)
def test_password(value, shown):
    """CH-10, RT-11: a password in a URL or a target is masked, whatever characters it has."""
    error = OptionError("key", value, "another")

    assert str(error) == f"key={shown}: expected another"
    assert error.value == value


def test_password_suggested():
    """CH-10: a suggestion does not show a password either."""
    assert "hunter2" not in str(OptionError("key", 1, "another", "http://me:hunter2@proxy"))


def test_password_in_the_place_of_a_path():
    """BP-4, RT-11: if a URL is given as a file's path, neither the error nor its cause shows the password."""
    path = PASSWORD.join(("https://me:", "@shop/backoff.toml"))
    with pytest.raises(ConfigError) as caught:
        read_config(path)

    assert str(caught.value) == "https://me:***@shop/backoff.toml: cannot be read: No such file or directory"
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert caught.value.path == path
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_path_is_shown_as_it_is():
    """BP-4: a path that contains a colon and an @ is not taken for a URL."""
    assert str(ConfigError("/srv/shop:2/me@home.toml", "is bad")) == "/srv/shop:2/me@home.toml: is bad"


def test_long_value():
    """CH-10: a very long value is shortened in the message."""
    assert len(str(OptionError("key", "x" * 10_000, "less"))) < 300
