"""Combines several sources into one policy and records where each of its values came from.

A source holds the settings from one place: the arguments, the channel options, a table of the file, or a preset. It
maps the parts of a policy to their values. For each part, the first source that sets it takes precedence (BP-3).
Presets are sources as well, with the lowest precedence. This module reads no files or options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, is_dataclass
from typing import Any, Generic, TypeVar

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.policy.connect import DIALLING, ConnectPolicy
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.presets import AT_ONCE, PRESETS, PolicyT, build
from grpc_backoff.policy.setting import PREFIX
from grpc_backoff.policy.strategy import PARTS_OF_ANY_STRATEGY, PARTS_OF_STRATEGIES, Decorrelated, Steps

ResolvedT_co = TypeVar("ResolvedT_co", covariant=True)

_OF_CONNECTIONS = ("connection", "targets.")
"""How the names of the file's tables for connections begin."""


class SourceValue(NamedTuple):
    """One part's value in one source.

    Attributes:
        value: the checked value; times in seconds.
        key: the name under which the user knows it: an option, or the path of a key in the file. Empty for a preset.
        written: the value as the user wrote it.
        origin: a description of the source, such as "file backoff.toml".
    """

    value: Any
    key: str
    written: object
    origin: str

    def __str__(self) -> str:
        """Describe where the value came from."""
        return f"{self.origin}: {self.key}" if self.key else self.origin


Source = Mapping[str, SourceValue]
"""One source's values, by part."""


class Effective(NamedTuple):
    """One effective value, and where it came from."""

    part: str
    value: object
    origin: str


class ResolvedPolicy(NamedTuple, Generic[ResolvedT_co]):
    """A policy, the source of each of its values, and remarks.

    Attributes:
        policy: the policy.
        values: its values, by part.
        remarks: a sentence for each setting that has no effect.
    """

    policy: ResolvedT_co
    values: Source
    remarks: tuple[str, ...] = ()

    @property
    def effective(self) -> tuple[Effective, ...]:
        """Its values, with their sources."""
        return effective_of(self.values)


def effective_of(values: Source) -> tuple[Effective, ...]:
    """Return values with descriptions of their sources, which most programs never read."""
    return tuple(Effective(part, value.value, str(value)) for part, value in values.items())


def source_of(origin: str, values: Mapping[str, object]) -> Source:
    """Return a source from values that have no keys, such as those of a preset."""
    return {part: SourceValue(value, "", value, origin) for part, value in values.items()}


def begin_with(name: str, key: str = "policy") -> Source:
    """Return a source that only names the policy to start from; errors refer to the name as `key`."""
    return {"preset": SourceValue(name, key, name, "name")}


def merged(sources: Sequence[Source]) -> dict[str, SourceValue]:
    """Return the value of each part from the first source that sets it."""
    values: dict[str, SourceValue] = {}
    for source in reversed(sources):
        values.update(source)
    return values


def compose(kind: type[PolicyT], sources: Sequence[Source]) -> ResolvedPolicy[PolicyT]:
    """Build a policy from these sources, highest precedence first; together they must set every required part.

    Raises:
        OptionError: a setting of one source conflicts with another source, or a required part is missing.
    """
    values: dict[str, SourceValue] = merged(sources)
    _settle_strategy(sources, values)
    _settle_jitter(sources, values)
    _settle_cap(sources, values)
    named: list[str] = [part.name for part in fields(kind) if part.init and part.name != "backoff"]
    parts = ["backoff", *PARTS_OF_STRATEGIES[values["backoff"].value], "max_delay", "jitter", *named]
    policy = build(kind, {part: value.value for part, value in values.items()})
    return ResolvedPolicy(policy, {part: values[part] for part in parts if part in values})


def describe(policy: ConnectPolicy, origin: str) -> Source:
    """Return the values of a policy that was passed as one object."""
    strategy = policy.backoff.strategy
    parts: dict[str, object] = {"backoff": strategy.name}
    values = astuple(strategy) if is_dataclass(strategy) else ()
    parts |= zip(PARTS_OF_STRATEGIES.get(strategy.name, ()), values, strict=False)
    parts |= {"max_delay": policy.backoff.cap, "jitter": policy.backoff.jitter}
    parts |= {part.name: getattr(policy, part.name) for part in fields(policy) if part.init and part.name != "backoff"}
    return source_of(origin, {part: value for part, value in parts.items() if value is not None})


def misplaced(part: str, value: SourceValue, kind: str) -> OptionError:
    """Return the error for a part that does not apply to this kind of backoff."""
    kinds = " or ".join(repr(name) for name, parts in PARTS_OF_STRATEGIES.items() if part in parts)
    problem = f"{value.key!r} applies only with backoff {kinds}, not with {kind!r}"
    return OptionError(value.key, value.written, f"no {part} with {kind} backoff", problem=problem)


def lacks(value: SourceValue, needed: str, subject: str = "") -> OptionError:
    """Return the error for a value without another setting; `subject` shows the value, if its key does not."""
    problem = f"{subject or repr(value.key)} requires {needed!r} as well"
    return OptionError(value.key, value.written, f"{needed} to be set as well", problem=problem)


def _settle_strategy(sources: Sequence[Source], values: dict[str, SourceValue]) -> None:
    kind: str = values["backoff"].value
    needed = PARTS_OF_STRATEGIES[kind][0]
    if needed not in values:
        naming = values["backoff"] if values["backoff"].key else values["preset"]
        raise lacks(naming, _key_beside(naming.key, needed), f"{naming.key}={shown(naming.written)}")
    for part in PARTS_OF_ANY_STRATEGY - set(PARTS_OF_STRATEGIES[kind]):
        if part in values and _outranks(sources, part, "backoff"):
            raise misplaced(part, values[part], kind)
        values.pop(part, None)


def _key_beside(key: str, part: str) -> str:
    """Return the key that sets this part where the user wrote `key`: for connections, it is not the part's name."""
    setting = next((each for each in DIALLING if each.part == part), None)
    if setting is not None and key.startswith(PREFIX):
        return setting.option or part
    table, dot, _ = key.rpartition(".")
    return table + dot + setting.name if setting is not None and table.startswith(_OF_CONNECTIONS) else part


def _settle_jitter(sources: Sequence[Source], values: dict[str, SourceValue]) -> None:
    jitter = values["jitter"]
    if values["backoff"].value != Decorrelated.name or isinstance(jitter.value, NoJitter):
        return
    if _outranks(sources, "jitter", "backoff"):
        raise OptionError(jitter.key, jitter.written, "'none', because decorrelated backoff has its own jitter")
    values["jitter"] = values["backoff"]._replace(value=NoJitter())


def _settle_cap(sources: Sequence[Source], values: dict[str, SourceValue]) -> None:
    """If the first wait, or the longest step, exceeds the maximum, settle which of them applies.

    A maximum that the user set, or that has precedence, applies: the first wait is lowered to it, as in grpcio. A
    preset's own maximum is raised instead.

    A preset's limit on the waits that servers ask for is its maximum, whatever the maximum becomes (RT-3).
    """
    part = "delay" if "delay" in values else Steps.name
    longest = values[part].value if part == "delay" else max(values[part].value)
    most = values["max_delay"]
    if most.value < longest:
        if not (most.key or rank_of("max_delay", sources) < rank_of(part, sources)):
            values["max_delay"] = values[part]._replace(value=longest)
        elif part == "delay":
            values["delay"] = most
    limit = values.get("max_server_delay")
    if limit is not None and limit.value is not None and not limit.key:
        values["max_server_delay"] = values["max_delay"]


def _outranks(sources: Sequence[Source], part: str, other: str) -> bool:
    """Return whether the user set this part, in a source with at least the precedence of the other part's source."""
    rank = rank_of(part, sources)
    return bool(sources[rank][part].key) and rank <= rank_of(other, sources)


def rank_of(part: str, sources: Sequence[Source]) -> int:
    """Return the index of the source that sets this part; 0 has the highest precedence."""
    return next(rank for rank, source in enumerate(sources) if part in source)


PRESET_SOURCES: Mapping[str, Source] = {name: source_of(f"preset {name}", parts) for name, parts in PRESETS.items()}
"""The presets as sources, by name."""

AT_ONCE_SOURCE = source_of("no delay", AT_ONCE)
"""The source for a policy that retries without delay."""
