"""The TOML file that sets everything: the one source of truth (BP-3), read and checked as a whole (BP-4).

A file looks like this. Every key may be left out; a time is a number of seconds or a text such as "500ms"::

    [connection]                # how channels connect
    preset = "grpc"
    initial_backoff = 1.0
    max_backoff = 120.0
    multiplier = 1.6
    jitter = 0.2
    jitter_first = false
    min_connect_timeout = 20.0
    stable_after = 0.0
    reconnect = "lazy"
    idle_timeout = 1800.0       # inf is never

    [targets."*.example:443"]   # the same settings for targets that look like this
    max_backoff = "30s"

    [policies.careful]          # a policy by name, to begin others with: `preset = "careful"`
    preset = "standard"
    max_delay = "10s"

    [methods."shop.Orders"]     # how calls of a service are retried; "shop.Orders/Place" is one method, "*" are all
    preset = "careful"
    retry = 2

    [retry_budget]              # retries of each target, while most of its calls fail: gRPC's retryThrottling
    max_tokens = 10
    token_ratio = 0.1

    [ledger]                    # operations that outlive the process
    policy = "careful"
    lease = "30s"

Which values are allowed is not decided here: `settings.py` has the tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from grpc_backoff.config import names
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.settings import (
    BUDGETING,
    CONNECTING,
    KEEPING,
    RETRYING,
    Setting,
    begin_with,
    read_source,
    resolve_budget,
    resolve_connect,
    resolve_ledger,
    resolve_retry,
    suggestion,
)
from grpc_backoff.config.sources import ResolvedPolicy, Source
from grpc_backoff.errors import ConfigError, OptionError
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.ledger import LedgerSettings
from grpc_backoff.policy.presets import PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.record import value

__all__ = ["ENVIRONMENT_VARIABLE", "TABLES", "Config", "Section", "read_config"]

ENVIRONMENT_VARIABLE = "GRPC_BACKOFF_CONFIG"
"""Where a channel finds the path of its file when neither an argument nor an option names one."""

Section = (
    ResolvedPolicy[ConnectPolicy]
    | ResolvedPolicy[RetryPolicy]
    | ResolvedPolicy[RetryBudget]
    | ResolvedPolicy[LedgerSettings]
)
"""What one table of the file comes to."""

TABLES = ("connection", "targets", "policies", "methods", "retry_budget", "ledger")
"""The tables that a file may have at its top."""

_LARGEST = 1_000_000
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@value(frozen=True, slots=True, kw_only=True)
class Config:
    """What a file says, checked.

    Attributes:
        path: the file, as it was named.
        connection: its table `[connection]`.
        targets: its tables `[targets."PATTERN"]`, by pattern.
        policies: its tables `[policies.NAME]`, by name.
        methods: its tables `[methods."SERVICE/METHOD"]`, by what they are for.
        retry_budget: its table `[retry_budget]`.
        ledger: its table `[ledger]`.
    """

    path: str
    connection: Source
    targets: Mapping[str, Source]
    policies: Mapping[str, Source]
    methods: Mapping[str, Source]
    retry_budget: Source
    ledger: Source

    def connecting(self, target: str) -> list[Source]:
        """Return what the file says of connections to a target, the nearest first."""
        pattern = names.nearest_pattern(self.targets, target)
        return [self.connection] if pattern is None else [self.targets[pattern], self.connection]

    def connect_policy(self, target: str = "") -> ResolvedPolicy[ConnectPolicy]:
        """Return the policy of connections to a target, where no option and no argument says more."""
        return resolve_connect(self.connecting(target), self.policies)

    def retry_policy(self, method: str) -> ResolvedPolicy[RetryPolicy] | None:
        """Return the policy of a method, given as `package.Service/Method`; None if the file has none for it.

        The nearest table holds, whole: that of the method, else that of its service, else that of all.
        """
        entry = names.nearest_method(self.methods, method)
        return None if entry is None else resolve_retry([self.methods[entry]], self.policies)

    def policy(self, name: str) -> ResolvedPolicy[RetryPolicy]:
        """Return a policy by its name: one of the file's own, or a preset; OptionError if there is none."""
        return resolve_retry([begin_with(name)], self.policies)

    def budget(self) -> ResolvedPolicy[RetryBudget] | None:
        """Return the retry budget of each target; None if the file has none (RT-9)."""
        return resolve_budget(self.retry_budget)

    def ledger_settings(self) -> ResolvedPolicy[LedgerSettings]:
        """Return the limits and times of a ledger, where no argument says more (LG-14)."""
        return resolve_ledger([self.ledger], self.policies)

    def sections(self) -> Iterator[tuple[str, Section]]:
        """Return every policy that the file describes, by the path of its table."""
        yield "connection", resolve_connect([self.connection], self.policies)
        for pattern, source in self.targets.items():
            yield f"targets.{_key(pattern)}", resolve_connect([source, self.connection], self.policies)
        for table, sources in (("policies", self.policies), ("methods", self.methods)):
            for name, source in sources.items():
                yield f"{table}.{_key(name)}", resolve_retry([source], self.policies)
        budget = self.budget()
        if budget is not None:
            yield "retry_budget", budget
        if self.ledger:
            yield "ledger", self.ledger_settings()


def read_config(path: str | os.PathLike[str]) -> Config:
    """Read a file, whole or not at all; a relative path counts from the working directory.

    Raises:
        ConfigError: it cannot be read, is not TOML, or has a wrong value.

    Warns:
        PolicyWarning: something that it says has no effect.
    """
    name = os.fspath(path)
    document = _parse(name)
    try:
        config = _read(name, document)
        warn_of(f"{name}: {remark}" for remark in _try_out(config))
    except OptionError as error:
        raise ConfigError(name, str(error), error.key) from None
    return config


def _parse(name: str) -> dict[str, Any]:
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib takes its time to import
            content = file.read(_LARGEST + 1)
    except OSError as error:
        cause = OSError(error.errno, error.strerror)  # without the path, in which there may be a password
        raise ConfigError(name, f"cannot be read: {error.strerror}") from cause
    except ValueError as error:  # a path with a NUL, say
        raise ConfigError(name, f"cannot be read: {error}") from error
    if len(content) > _LARGEST:
        raise ConfigError(name, f"is larger than {_LARGEST} bytes")
    import tomllib  # noqa: PLC0415 - it takes its time, and most channels have no file

    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(name, f"is not UTF-8 (at line {line})") from error
    except ValueError as error:  # TOMLDecodeError, and what int() says of a number with thousands of digits
        raise ConfigError(name, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(name, "is nested too deeply") from error


def _read(name: str, document: Mapping[str, Any]) -> Config:
    for table, content in document.items():
        if table not in TABLES:
            raise OptionError(table, content, *suggestion(table, dict(zip(TABLES, TABLES, strict=True)), "table"))
    origin = f"file {name}"
    return Config(
        path=name,
        connection=_source(CONNECTING, "connection", document.get("connection", {}), origin),
        targets=_sources(CONNECTING, "targets", document, origin),
        policies=_sources(RETRYING, "policies", document, origin),
        methods=_sources(RETRYING, "methods", document, origin),
        retry_budget=_source(BUDGETING, "retry_budget", document.get("retry_budget", {}), origin),
        ledger=_source(KEEPING, "ledger", document.get("ledger", {}), origin),
    )


def _sources(settings: tuple[Setting, ...], table: str, document: Mapping[str, Any], origin: str) -> dict[str, Source]:
    tables = document.get(table, {})
    _check_table(table, tables)
    return {name: _source(settings, f"{table}.{_key(name)}", content, origin) for name, content in tables.items()}


def _source(settings: tuple[Setting, ...], table: str, content: object, origin: str) -> Source:
    _check_table(table, content)
    assert _is_table(content)
    given = {name: (f"{table}.{_key(name)}", value) for name, value in content.items()}
    return read_source(settings, given, origin, Unit.WRITTEN)


def _check_table(key: str, content: object) -> None:
    if not _is_table(content):
        raise OptionError(key, content, "a table")


def _is_table(content: object) -> TypeGuard[dict[str, object]]:
    return isinstance(content, dict)


def _key(name: str) -> str:
    """Return a key as TOML has it: in quotation marks unless it is bare."""
    return name if name and set(name) <= _BARE else f'"{name}"'


def _try_out(config: Config) -> Iterator[str]:
    """Make every policy that the file describes, so that what does not go together is told when the file is read."""
    names.check_patterns("targets", config.targets)
    names.check_methods("methods", config.methods)
    for name in config.policies:
        if name in PRESETS:
            raise OptionError(f"policies.{_key(name)}", name, "a name other than a preset's")
    for name, resolved in config.sections():
        if not name.startswith("policies."):  # what begins with one may say the rest
            yield from resolved.remarks
