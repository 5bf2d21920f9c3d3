"""Channel options in, a connect policy out (CH-9), or an error that says what is wrong with which (CH-10).

Milliseconds live at this edge only, since grpc's options are in them; everything behind it is seconds.

Ours are the keys that begin with `grpc_backoff.`, and the few of grpc's that this library carries out in its stead.
A key that is ours but for its punctuation or its case (`grpc-backoff.jitter`) is an error too: grpc would pass over it
in silence. Whatever begins with `grpc.` and is not in the table is grpc's, misspelt or not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import Any

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.config import ENVIRONMENT_VARIABLE, read_config
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.settings import PREFIX, SETTINGS, Settings, check_order, connect_policy, suggestion

__all__ = ["OPTION_KEYS", "read_options"]

Options = tuple[tuple[Any, Any], ...]

CONFIG = PREFIX + "config"
FIXED_BACKOFF_MS = "grpc.testing.fixed_reconnect_backoff_ms"
IDLE_TIMEOUT_MS = "grpc.client_idle_timeout_ms"

OPTION_KEYS = (*(setting.option for setting in SETTINGS), CONFIG, FIXED_BACKOFF_MS)
"""All options that mean something to this library."""

_OWN_KEYS = tuple(key for key in OPTION_KEYS if key.startswith(PREFIX))
_WORDS = {setting.name: setting.option for setting in SETTINGS} | {key.removeprefix(PREFIX): key for key in _OWN_KEYS}
_MAX_INT32 = 2**31 - 1
_MEANT_FOR_US = re.compile(r"(?!grpc\.)grpc[^a-z]*backoff[^a-z]+", re.IGNORECASE)


def read_options(
    options: Iterable[tuple[str | bytes, Any]], policy: ConnectPolicy | None = None
) -> tuple[ConnectPolicy, Options]:
    """Return the connect policy that the options describe, and the options that are grpcio's.

    Where a key stands twice the first wins, as in grpcio. The options have more say than the file that the option
    `grpc_backoff.config`, or else the environment, names. A `policy` that is given overrides both, which are checked
    all the same. grpcio's options are untouched and in their order; the last one tells it the idle timeout that was
    decided upon, since a connection that nobody uses is its to end (CB-14).

    Raises:
        OptionError: an option of ours is unknown or has a value that is not allowed.
        ConfigError: the file cannot be read, or says something that is not allowed.
    """
    given, core = _sort(options)
    described = connect_policy([_settings(given), _file_settings(given)])
    if policy is None:
        policy = described
    elif not isinstance(policy, ConnectPolicy):
        raise OptionError("policy", policy, "a ConnectPolicy is")
    return policy, (*core, (IDLE_TIMEOUT_MS, _milliseconds(policy.idle_timeout)))


def _sort(options: Iterable[Any]) -> tuple[dict[str, object], Options]:
    """Tell our options from grpcio's."""
    ours: dict[str, object] = {}
    core = []
    for index, entry in enumerate(options):
        key, value = _pair(index, entry)
        if key in OPTION_KEYS:
            ours.setdefault(key, value)
        elif meant := _MEANT_FOR_US.match(key):
            raise OptionError(key, value, suggestion(key[meant.end() :], _WORDS, "option"))
        else:
            core.append(entry)
    return ours, tuple(core)


def _pair(index: int, entry: object) -> tuple[str, object]:
    if isinstance(entry, tuple | list) and len(entry) == 2:  # noqa: PLR2004 - a pair
        key, value = entry
        if isinstance(key, bytes):  # which grpcio takes as well
            key = key.decode(errors="replace")
        if isinstance(key, str):
            return key, value
    raise OptionError(f"options[{index}]", entry, "a pair of a key and a value is")


def _settings(given: dict[str, object]) -> Settings:
    named = {setting: (setting.option, given[setting.option]) for setting in SETTINGS if setting.option in given}
    settings = {setting.name: setting.check(*entry, setting.unit) for setting, entry in named.items()}
    check_order({setting.name: entry for setting, entry in named.items()}, settings)
    if FIXED_BACKOFF_MS in given:  # overrides the others and turns growth and jitter off, as in C-core
        gap = checks.duration(FIXED_BACKOFF_MS, given[FIXED_BACKOFF_MS], Unit.MILLISECONDS)
        settings |= dict.fromkeys(("initial_backoff", "max_backoff", "min_connect_timeout"), gap)
        settings |= {"multiplier": 1.0, "jitter": 0.0}
    return settings


def _file_settings(given: dict[str, object]) -> Settings:
    path = given.get(CONFIG, os.environ.get(ENVIRONMENT_VARIABLE) or None)
    if path is None and CONFIG not in given:
        return {}
    if not path or not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise OptionError(CONFIG, path, "the path of a file is")
    return read_config(path).connection


def _milliseconds(seconds: float) -> int:
    return _MAX_INT32 if math.isinf(seconds) else min(round(seconds * 1000), _MAX_INT32)
