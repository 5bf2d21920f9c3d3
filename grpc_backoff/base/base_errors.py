"""The errors that load no grpc; `errors.py` lists them with those that calls raise.

Internal: programs import from `grpc_backoff.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from grpc_backoff.base.status import Failure

_LONGEST_VALUE = 200
_LONGEST_SEARCHED = 10 * _LONGEST_VALUE
_BEFORE_HOST = r":(?!//)\S*@"


class GrpcBackoffError(Exception):
    """The base class of all of this library's errors."""


class OptionError(GrpcBackoffError, ValueError):
    """A channel option or argument has an invalid value or an unknown name.

    About a value, the message reads `grpc_backoff.multiplier=0.5: expected a finite number of at least 1`. Any other
    message is a sentence, such as `unknown option 'grpc_backoff.jiter': did you mean 'grpc_backoff.jitter'?`. Long
    values are truncated, and a password in a URL is shown as `***`.

    Attributes:
        key: the option's full name.
        value: the value as given, neither truncated nor masked.
        allowed: a noun phrase that says what was expected.
        meant: the likely intended key or value, if one was misspelt; None if there is no suggestion.
        problem: the message, if the error is not about the value alone; otherwise None.
    """

    def __init__(
        self, key: str, value: object, allowed: str, meant: str | None = None, problem: str | None = None
    ) -> None:
        super().__init__(key, value, allowed, meant, problem)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.meant = meant
        self.problem = problem

    def __str__(self) -> str:
        """Return the message: the key, the value and what was expected, or the problem (CH-10)."""
        hint = "" if self.meant is None else f"did you mean {_masked(repr(self.meant))}?"
        if self.problem is not None:
            return f"{self.problem}{hint and f': {hint}'}"
        hint = hint and f"; {hint}"
        return f"{self.key}={shown(self.value)}: expected {self.allowed}{hint}"


class ConfigError(GrpcBackoffError, ValueError):
    """The configuration file cannot be read or has an invalid value.

    Attributes:
        path: the file, as named by the caller. If it is a URL, the message masks the password.
        problem: a description of the error, with the line if the file is not valid TOML.
        key: the path of the invalid key, such as `connection.jitter`; None if the error does not concern one key.
    """

    def __init__(self, path: str, problem: str, key: str | None = None) -> None:
        super().__init__(path, problem, key)
        self.path = path
        self.problem = problem
        self.key = key

    def __str__(self) -> str:
        """Return the message: the file and what is wrong with it (BP-4)."""
        path = _masked(self.path) if "://" in self.path else self.path  # a file name may contain a colon and an @
        return f"{path}: {self.problem}"


class ConnectError(GrpcBackoffError):
    """One attempt to connect failed.

    Attributes:
        failure: the stage at which it failed, and why.
        redials: how often grpc's core has redialled by itself since, because this process was late (CB-16).
    """

    def __init__(self, failure: Failure, redials: int = 0) -> None:
        super().__init__(failure)
        self.failure = failure
        self.redials = redials

    def __str__(self) -> str:
        """Return the message: the stage and the reason."""
        return str(self.failure)


class IllegalTransition(GrpcBackoffError, RuntimeError):  # noqa: N818 - the established term
    """A state machine received an input for which its current phase has no transition, which is a bug."""


class MissingExtra(GrpcBackoffError, ImportError):  # noqa: N818 - named after what is missing
    """A feature needs optional packages that are not installed."""

    def __init__(self, extra: str, feature: str) -> None:
        """Store the name of the extra and build a message that says how to install it."""
        super().__init__(
            f"{feature} needs the extra '{extra}': pip install 'grpc-backoff[{extra}]', or '.[{extra}]' in a checkout"
        )
        self.extra = extra
        self.feature = feature

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Support pickling, because the constructor does not take the message."""
        return type(self), (self.extra, self.feature)


class WrongLoopError(GrpcBackoffError, RuntimeError):
    """A channel was used on an event loop other than its own; the message says what to do."""


class PolicyWarning(UserWarning):
    """A policy has a setting that has no effect, such as `backoff` without `delay`, or may retry endlessly (BP-2)."""


def near_miss(word: str, keys: Mapping[str, str], least: float = 0.6) -> str | None:
    """Return the key that a misspelt word probably means; None if none is similar.

    `keys` is as in `unknown`. `least` is the lowest ratio of difflib, from 0 to 1, at which words are similar.
    """
    import difflib  # noqa: PLC0415 - only an error needs it

    near = difflib.get_close_matches(word.lower(), keys, n=1, cutoff=least)
    return keys[near[0]] if near else None


def unknown(kind: str, key: str, value: object, word: str, keys: Mapping[str, str], prefix: str = "") -> OptionError:
    """Return the error for an unknown key, which suggests the nearest key or lists all of them.

    Args:
        kind: what such a key is called, such as "option".
        key: the unknown key, as the user knows it.
        value: its value.
        word: the key without the prefix that all such keys share.
        keys: the correct key for each word that might be meant.
        prefix: what the list of keys leaves out at the start of each.
    """
    meant = near_miss(word, keys)
    allowed = f"one of: {', '.join(dict.fromkeys(name.removeprefix(prefix) for name in keys.values()))}"
    problem = f"unknown {kind} {shown(key)}"
    return OptionError(key, value, allowed, meant, problem if meant else f"{problem}: expected {allowed}")


def shown(value: object) -> str:
    """Return a value's repr for a message: truncated if it is long, and with any password in a URL shown as `***`."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - any repr may raise, even that of an int with 5,000 digits
        text = kind_of(value)
    text = _masked(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def kind_of(value: object) -> str:
    """Return what a message shows of a value that may be secret: `None`, or its type, such as `<str>`."""
    return "None" if value is None else f"<{type(value).__name__}>"


def _masked(text: str) -> str:
    """Replace anything that may be a password in a URL with `***`; the URL may lack its scheme."""
    return re.sub(_BEFORE_HOST, ":***@", text[:_LONGEST_SEARCHED])
