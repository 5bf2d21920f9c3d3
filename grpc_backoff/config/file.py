"""Reads the TOML file that configures connections, calls and ledgers (BP-3), and checks it as a whole (BP-4).

Every key is optional. A time is a number of seconds, or a string such as "500ms". The tables of settings in
`grpc_backoff.policy` define which keys and values are allowed; `docs/policies.md` has an example.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpc_backoff.base.base_errors import ConfigError, OptionError, unknown
from grpc_backoff.config.call_policies import nearest_entry
from grpc_backoff.config.patterns import check_methods, first_pattern, unreachable
from grpc_backoff.config.remarks import missing_jitter, warn_of
from grpc_backoff.config.resolving import resolve_budget, resolve_call, resolve_connect, resolve_plain, resolve_retry
from grpc_backoff.config.settings import CONNECTING, read_source
from grpc_backoff.config.sources import ResolvedPolicy, Source, begin_with, merged, source_of
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy
from grpc_backoff.policy.ledger_settings import KEEPING, LEDGER, LedgerSettings
from grpc_backoff.policy.presets import PRESETS
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import Setting

Section = ResolvedPolicy[ConnectPolicy | RetryPolicy | HedgingPolicy | RetryBudget | LedgerSettings]
"""The result of reading one table of the file."""

TABLES = ("connection", "targets", "policies", "methods", "retry_budget", "ledger")
"""The tables allowed at the top level of a file."""

_LARGEST = 1_000_000  # the largest file, in bytes
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
"""The characters of keys that TOML takes without quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The validated contents of a configuration file.

    Attributes:
        path: the file, as named by the caller.
        connection: the table `[connection]`.
        targets: the tables `[targets."PATTERN"]`, by pattern, in the order of the file: the first that matches applies.
        policies: the tables `[policies.NAME]`, by name.
        methods: the policies of the tables `[methods."SERVICE/METHOD"]`, by service or method.
        retry_budget: the table `[retry_budget]`; None if the file has none (RT-9).
        ledger: the table `[ledger]`.
    """

    path: str
    connection: Source
    targets: Mapping[str, Source]
    policies: Mapping[str, Source]
    methods: Mapping[str, ResolvedPolicy[CallPolicy]]
    retry_budget: ResolvedPolicy[RetryBudget] | None
    ledger: Source

    def connecting(self, target: str) -> list[Source]:
        """Return the file's settings for connections to a target, with the most specific first."""
        pattern = first_pattern(self.targets, target)
        return [self.connection] if pattern is None else [self.targets[pattern], self.connection]

    def connect_policy(self, target: str = "") -> ResolvedPolicy[ConnectPolicy]:
        """Return the connect policy for a target, before options and arguments override it.

        The effective values include those of the pool policy.
        """
        return resolve_connect(self.connecting(target), self.policies)[0]

    def retry_policy(self, method: str) -> ResolvedPolicy[CallPolicy] | None:
        """Return the policy for a method, given as `package.Service/Method`; None if the file has none for it.

        Only the most specific table applies: the method's, else its service's, else the one for all methods.
        """
        return nearest_entry(self.methods, method)

    def lost_deadlines(self) -> Iterator[str]:
        """Yield a sentence for each table of `[methods]` without a deadline that hides one with a deadline."""
        for entry, resolved in self.methods.items():
            hidden = nearest_entry({name: name for name in self.methods if name != entry}, entry)
            if hidden is not None and resolved.policy.deadline is None and self.methods[hidden].policy.deadline:
                table = f"methods.{_key(entry)}"
                yield f"{table} has no deadline: it inherits nothing from methods.{_key(hidden)}, which has one"

    def policy(self, name: str) -> ResolvedPolicy[RetryPolicy]:
        """Return the retry policy with this name, from the file or the presets; OptionError if there is none."""
        return resolve_retry([begin_with(name)], self.policies)

    def budget(self) -> ResolvedPolicy[RetryBudget] | None:
        """Return the retry budget for each target; None if the file sets none (RT-9)."""
        return self.retry_budget

    def ledger_settings(self) -> ResolvedPolicy[LedgerSettings]:
        """Return a ledger's limits and times, before arguments override them (LG-14)."""
        return resolve_ledger([self.ledger], self.policies)

    def sections(self) -> Iterator[tuple[str, Section]]:
        """Yield every policy that the file describes, with the path of its table."""
        yield "connection", resolve_connect([self.connection], self.policies)[0]
        for pattern, source in self.targets.items():
            yield f"targets.{_key(pattern)}", resolve_connect([source, self.connection], self.policies)[0]
        for name, source in self.policies.items():
            changed = begin_with(name) if name in PRESETS else source
            yield f"policies.{_key(name)}", resolve_retry([changed], self.policies)
        for name, resolved in self.methods.items():
            yield f"methods.{_key(name)}", resolved
        if self.retry_budget is not None:
            yield "retry_budget", self.retry_budget
        if self.ledger:
            yield "ledger", self.ledger_settings()


def resolve_ledger(sources: Sequence[Source], policies: Mapping[str, Source]) -> ResolvedPolicy[LedgerSettings]:
    """Return the ledger settings described by these sources, highest precedence first (LG-14).

    Raises:
        OptionError: the named policy does not exist.
    """
    values = merged([*sources, source_of("default", LEDGER)])
    policy = values["policy"]
    if ":" not in policy.value:
        resolve_retry([{"preset": policy}], policies)
    return resolve_plain(LedgerSettings, values)


def read_config(path: str | os.PathLike[str]) -> Config:
    """Read and check a configuration file; a relative path is resolved against the working directory.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has an invalid value.

    Warns:
        PolicyWarning: a setting has no effect, or the waits of a table have no jitter.
    """
    name = os.fspath(path)
    document = _parse(name)
    try:
        config = _read(name, document)
        warn_of(f"{name}: {remark}" for remark in _try_out(config))
    except OptionError as error:
        raise ConfigError(name, str(error), error.key) from None
    return config


def _parse(name: str) -> dict[str, object]:
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            content = file.read(_LARGEST + 1)
    except OSError as error:
        cause = OSError(error.errno, error.strerror)  # without the path, which may contain a password
        raise ConfigError(name, f"cannot be read: {error.strerror}") from cause
    except ValueError as error:  # for example, a path with a NUL character
        raise ConfigError(name, f"cannot be read: {error}") from error
    if len(content) > _LARGEST:
        raise ConfigError(name, f"is larger than {_LARGEST} bytes")
    import tomllib  # noqa: PLC0415 - it is slow to import, and most channels have no file

    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a byte-order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(name, f"is not UTF-8 (at line {line})") from error
    except ValueError as error:  # TOMLDecodeError, or from int(), for a number with thousands of digits
        raise ConfigError(name, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(name, "is nested too deeply") from error


def _read(name: str, document: Mapping[str, object]) -> Config:
    for table, content in document.items():
        if table not in TABLES:
            raise unknown("table", table, content, table, dict(zip(TABLES, TABLES, strict=True)))
    origin = f"file {name}"
    policies = _sources(RETRYING, "policies", document, origin)
    methods = _sources(None, "methods", document, origin)
    check_methods("methods", methods)
    return Config(
        path=name,
        connection=_source(CONNECTING, "connection", document.get("connection", {}), origin),
        targets=_sources(CONNECTING, "targets", document, origin),
        policies=policies,
        methods={method: _method(method, source, policies) for method, source in methods.items()},
        retry_budget=resolve_budget(_source(BUDGETING, "retry_budget", document.get("retry_budget", {}), origin)),
        ledger=_source(KEEPING, "ledger", document.get("ledger", {}), origin),
    )


def _method(method: str, source: Source, policies: Mapping[str, Source]) -> ResolvedPolicy[CallPolicy]:
    resolved = resolve_call(source, policies)
    if not isinstance(resolved.policy, RetryPolicy):
        return resolved
    remarks = missing_jitter(source, resolved.policy, f"methods.{_key(method)}")
    return resolved._replace(remarks=(*resolved.remarks, *remarks))


def _sources(
    settings: tuple[Setting, ...] | None, table: str, document: Mapping[str, object], origin: str
) -> dict[str, Source]:
    tables = _table(table, document.get(table, {}))
    return {name: _source(settings, f"{table}.{_key(name)}", content, origin) for name, content in tables.items()}


def _source(settings: tuple[Setting, ...] | None, table: str, content: object, origin: str) -> Source:
    values = {name: (f"{table}.{_key(name)}", value) for name, value in _table(table, content).items()}
    return read_source(settings, values, origin, Unit.WRITTEN)


def _table(key: str, content: object) -> dict[str, object]:
    if not isinstance(content, dict):
        raise OptionError(key, content, "a table")
    return content


def _key(name: str) -> str:
    """Return a key in TOML syntax, with quotes unless it is a bare key."""
    return name if name and set(name) <= _BARE else f'"{name}"'


def _try_out(config: Config) -> Iterator[str]:
    """Build every policy in the file, so that contradictions are reported when the file is read; yield the warnings."""
    for pattern, covering in unreachable(config.targets):
        yield f"targets.{_key(pattern)} has no effect after targets.{_key(covering)}, which matches the same targets"
    for name, resolved in config.sections():
        if not name.startswith("policies."):  # a policy that inherits from it may supply the rest
            yield from resolved.remarks
    for name, source in config.policies.items():
        if name not in PRESETS:
            yield from missing_jitter(source, resolve_retry([source], config.policies).policy, f"policies.{_key(name)}")
