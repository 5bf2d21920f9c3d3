"""The library's errors: their class tree, their messages, and pickling."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
import traceback

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import errors
from grpc_backoff.aio import NoConnectionError, RetriesExhaustedError
from grpc_backoff.config.file import read_config
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.errors import (
    ConfigError,
    ConnectError,
    GrpcBackoffError,
    IllegalTransition,
    MissingExtra,
    OptionError,
)

PASSWORD = "hunter2"
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
    (MissingExtra("cli"), "this needs optional packages: pip install 'grpc-backoff[cli]', or '.[cli]' in a checkout"),
]


def import_all():
    for module in pkgutil.walk_packages(grpc_backoff.__path__, "grpc_backoff."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def tree(kind):
    """Return all descendants of an error, each with its base classes from outside the library."""
    return {
        (child.__name__, frozenset(base.__name__ for base in child.__bases__ if not issubclass(base, GrpcBackoffError)))
        for child in descendants(kind)
    }


def descendants(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("grpc_backoff"):
            yield child
            yield from descendants(child)


def test_tree_is_drawn():
    """The tree in the docstring matches the classes: every error, with its other base classes."""
    import_all()
    drawn = {
        (name.rpartition(".")[2], frozenset(part.rpartition(".")[2] for part in re.findall(r"[\w.]+", also or "")))
        for name, also in re.findall(r"[├└]── ([\w.]+)(?: \(also ([\w.]+)\))?", errors.__doc__)
    }

    assert drawn == tree(GrpcBackoffError)
    assert GrpcBackoffError.__bases__ == (Exception,)


def test_all_listed():
    """The module exports every error that it defines, and the warning."""
    places = {"grpc_backoff.base_errors", "grpc_backoff.channel.errors"}
    defined = {kind.__name__ for kind in descendants(GrpcBackoffError) if kind.__module__ in places} - {"CallError"}

    assert defined | {"GrpcBackoffError", "PolicyWarning"} == set(errors.__all__)
    assert issubclass(errors.PolicyWarning, UserWarning)


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


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (OptionError, ValueError),
        (ConfigError, ValueError),
        (IllegalTransition, RuntimeError),
        (MissingExtra, ImportError),
        (NoConnectionError, grpc.aio.AioRpcError),
        (NoConnectionError, grpc.RpcError),
        (RetriesExhaustedError, grpc.aio.AioRpcError),
        (RetriesExhaustedError, grpc.RpcError),
    ],
)
def test_caught_by_old_handlers(kind, also):
    """Existing `except` clauses for built-in and grpc errors catch these errors."""
    assert issubclass(kind, also)
    assert issubclass(kind, GrpcBackoffError)


def test_attributes():
    """CH-10: the parts of a message are attributes, so applications need not parse it."""
    option = OptionError("key", 1, "two")
    config = ConfigError("a.toml", "is bad", "connection.x")

    assert (option.key, option.value, option.allowed, option.meant) == ("key", 1, "two", None)
    assert (config.path, config.problem, config.key) == ("a.toml", "is bad", "connection.x")
    assert ConnectError(FAILURE).failure is FAILURE
    assert MissingExtra("cli").extra == "cli"


def test_suggestion():
    """CH-10: if a key was probably misspelt, the message ends with a suggestion."""
    error = OptionError("grpc_backoff.jiter", 0.1, "a valid option name", "grpc_backoff.jitter")

    assert error.meant == "grpc_backoff.jitter"
    assert str(error) == "grpc_backoff.jiter=0.1: expected a valid option name; did you mean 'grpc_backoff.jitter'?"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


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
