"""The TOML file that sets everything: the one source of truth (BP-3), read and checked as a whole (BP-4).

A file looks like this; every key may be left out, and times are seconds::

    [connection]
    preset = "grpc"
    initial_backoff = 1.0
    max_backoff = 120.0
    multiplier = 1.6
    jitter = 0.2
    jitter_first = false
    min_connect_timeout = 20.0
    stable_after = 0.0
    reconnect = "lazy"
    idle_timeout = 1800.0   # inf is never

Which values are allowed is not decided here: `settings.py` has the table.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from grpc_backoff.errors import ConfigError, OptionError
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.settings import SETTINGS, Settings, check_order, suggestion

__all__ = ["ENVIRONMENT_VARIABLE", "TABLES", "Config", "read_config"]

ENVIRONMENT_VARIABLE = "GRPC_BACKOFF_CONFIG"
"""Where a channel finds the path of its file when no option names one."""

TABLES = ("connection",)
"""The tables that a file may have at its top."""

_SETTINGS = {setting.name: setting for setting in SETTINGS}
_WORDS = {setting.option.partition(".")[2]: f"connection.{setting.name}" for setting in SETTINGS} | {
    setting.name: f"connection.{setting.name}" for setting in SETTINGS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a file says, checked.

    Attributes:
        path: the file, as it was named.
        connection: the settings of its table `[connection]`.
    """

    path: str
    connection: Settings


def read_config(path: str | os.PathLike[str]) -> Config:
    """Read a file, whole or not at all; a relative path counts from the working directory.

    Raises:
        ConfigError: it cannot be read, is no TOML, or says something that is not allowed.
    """
    name = os.fspath(path)
    document = _parse(name)
    try:
        for table, content in document.items():
            _check_table(table, content)
        return Config(path=name, connection=_connection(document.get("connection", {})))
    except OptionError as error:
        raise ConfigError(name, str(error), error.key) from None


def _parse(name: str) -> dict[str, Any]:
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(name, f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a path with a NUL, say
        raise ConfigError(name, f"cannot be read: {error}") from error
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(name, f"is not UTF-8 (at line {line})") from error
    except ValueError as error:  # TOMLDecodeError, and what int() says of a number with thousands of digits
        raise ConfigError(name, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(name, "is nested too deeply") from error


def _check_table(table: str, content: object) -> None:
    if table not in TABLES:
        raise OptionError(table, content, suggestion(table, dict(zip(TABLES, TABLES, strict=True)), "table"))
    if not _is_table(content):
        raise OptionError(table, content, "a table is")


def _is_table(content: object) -> TypeGuard[dict[str, object]]:
    return isinstance(content, dict)


def _connection(table: dict[str, object]) -> Settings:
    given = {name: (f"connection.{name}", value) for name, value in table.items()}
    settings = {name: _check(name, *entry) for name, entry in given.items()}
    check_order(given, settings)
    return settings


def _check(name: str, key: str, value: object) -> Any:
    setting = _SETTINGS.get(name)
    if setting is None:
        raise OptionError(key, value, suggestion(name, _WORDS, "setting"))
    return setting.check(key, value, Unit.SECONDS)
