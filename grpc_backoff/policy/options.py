"""Channel options in, a connect policy out (CH-9), or an error that says what is wrong with which (CH-10).

Milliseconds live at this edge only, since grpc's options are in them; everything behind it is seconds.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.presets import CONNECT, PRESETS

__all__ = ["OPTION_KEYS", "read_options"]

PREFIX = "grpc_backoff."

INITIAL_BACKOFF_MS = "grpc.initial_reconnect_backoff_ms"
MAX_BACKOFF_MS = "grpc.max_reconnect_backoff_ms"
MIN_CONNECT_TIMEOUT_MS = "grpc.min_reconnect_backoff_ms"  # a timeout in spite of its name, as in C-core
IDLE_TIMEOUT_MS = "grpc.client_idle_timeout_ms"

_MAX_INT32 = 2**31 - 1
_LEAST_IDLE_TIMEOUT_MS = 1000  # what C-core raises smaller ones to


def _positive_ms(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_INT32:
        raise OptionError(key, value, f"a whole number of milliseconds from 1 to {_MAX_INT32} is")
    return value / 1000


def _idle_timeout(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT32:
        raise OptionError(key, value, f"a whole number of milliseconds from 0 to {_MAX_INT32} (never) is")
    return math.inf if value == _MAX_INT32 else max(value, _LEAST_IDLE_TIMEOUT_MS) / 1000


def _number(key: str, value: object, allowed: str, accept: Callable[[float], bool]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionError(key, value, allowed)
    number = float(value) if abs(value) < 1e300 else math.inf  # noqa: PLR2004 - an int may be past any float
    if not math.isfinite(number) or not accept(number):
        raise OptionError(key, value, allowed)
    return number


def _multiplier(key: str, value: object) -> float:
    return _number(key, value, "a finite number of at least 1 is", lambda number: number >= 1)


def _jitter(key: str, value: object) -> float:
    return _number(key, value, "a number from 0 to below 1 is", lambda number: 0 <= number < 1)


def _stable_after(key: str, value: object) -> float:
    return _number(key, value, "a finite number of seconds of at least 0 is", lambda number: number >= 0)


def _flag(key: str, value: object) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise OptionError(key, value, "True or False (or 1 or 0) is")


def _choice(key: str, value: object, choices: Iterable[str]) -> str:
    if isinstance(value, str) and value in choices:
        return value
    raise OptionError(key, value, f"one of {', '.join(map(repr, choices))} is")


def _reconnect(key: str, value: object) -> Reconnect:
    return Reconnect(_choice(key, value, [choice.value for choice in Reconnect]))


def _preset(key: str, value: object) -> BackoffPolicy:
    return PRESETS[_choice(key, value, list(PRESETS))]


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    INITIAL_BACKOFF_MS: _positive_ms,
    MAX_BACKOFF_MS: _positive_ms,
    MIN_CONNECT_TIMEOUT_MS: _positive_ms,
    IDLE_TIMEOUT_MS: _idle_timeout,
    PREFIX + "multiplier": _multiplier,
    PREFIX + "jitter": _jitter,
    PREFIX + "jitter_first": _flag,
    PREFIX + "stable_after": _stable_after,
    PREFIX + "reconnect": _reconnect,
    PREFIX + "preset": _preset,
}

OPTION_KEYS = tuple(_READERS)
"""All options that mean something to this library."""

_STAY_WITH_CORE = {IDLE_TIMEOUT_MS}


def read_options(
    options: Iterable[tuple[str, Any]], policy: ConnectPolicy | None = None
) -> tuple[ConnectPolicy, tuple[tuple[str, Any], ...]]:
    """Return the connect policy that the options describe, and the options that are grpcio's, untouched.

    Where a key stands twice the first wins, as in grpcio. A `policy` that is given overrides the options, which are
    checked all the same.

    Raises:
        OptionError: an option of ours is unknown or has a value that is not allowed.
    """
    found: dict[str, Any] = {}
    core: list[tuple[str, Any]] = []
    for entry in options:
        key, value = _pair(entry)
        reader = _READERS.get(key)
        if reader is not None and key not in found:
            found[key] = reader(key, value)
        elif reader is None and key.startswith(PREFIX):
            raise _unknown(key, value)
        if reader is None or key in _STAY_WITH_CORE:
            core.append((key, value))
    described = _describe(found)
    return policy or described, tuple(core)


def _pair(entry: object) -> tuple[str, Any]:
    if isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], str):  # noqa: PLR2004
        return entry[0], entry[1]
    raise OptionError("options", entry, "a pair of a key (str) and a value is")


def _unknown(key: str, value: object) -> OptionError:
    ours = [known for known in _READERS if known.startswith(PREFIX)]
    near = difflib.get_close_matches(key, ours, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the options of this prefix are {', '.join(ours)}"
    return OptionError(key, value, f"no option has this name; {hint}")


def _describe(found: Mapping[str, Any]) -> ConnectPolicy:
    preset: BackoffPolicy = found.get(PREFIX + "preset", CONNECT.backoff)
    initial = found.get(INITIAL_BACKOFF_MS, preset.strategy.base)
    cap = found.get(MAX_BACKOFF_MS, preset.cap)
    if cap < initial:
        if INITIAL_BACKOFF_MS in found and MAX_BACKOFF_MS in found:
            least = f"at least {INITIAL_BACKOFF_MS} ({round(initial * 1000)}) is"
            raise OptionError(MAX_BACKOFF_MS, round(cap * 1000), least)
        if MAX_BACKOFF_MS in found:
            initial = cap  # a lower maximum alone lowers the initial backoff with it, as in grpcio
        else:
            cap = initial
    backoff = BackoffPolicy(
        strategy=Exponential(initial, found.get(PREFIX + "multiplier", preset.strategy.multiplier)),
        cap=cap,
        jitter=Proportional(found.get(PREFIX + "jitter", preset.jitter.fraction)),
    )
    return replace(
        CONNECT,
        backoff=backoff,
        min_connect_timeout=found.get(MIN_CONNECT_TIMEOUT_MS, CONNECT.min_connect_timeout),
        jitter_first=found.get(PREFIX + "jitter_first", CONNECT.jitter_first),
        stable_after=found.get(PREFIX + "stable_after", CONNECT.stable_after),
        reconnect=found.get(PREFIX + "reconnect", CONNECT.reconnect),
        idle_timeout=found.get(IDLE_TIMEOUT_MS, CONNECT.idle_timeout),
    )
