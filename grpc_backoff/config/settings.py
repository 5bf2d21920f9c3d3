"""How the values of settings are read from each source and combined into policies.

The tables of settings are in the modules of the policies. `CONNECTING` covers connections: the channel options and the
file's `[connection]` and `[targets]`. `RETRYING` covers calls: the file's `[policies]` and `[methods]`, and policy
strings. `HEDGING` takes its place for calls that are hedged. `BUDGETING` covers the file's `[retry_budget]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from grpc_backoff.base.base_errors import OptionError, near_miss, unknown
from grpc_backoff.config.sources import (
    AT_ONCE_SOURCE,
    PRESET_SOURCES,
    ResolvedPolicy,
    Source,
    SourceValue,
    compose,
    lacks,
    merged,
    misplaced,
    rank_of,
    source_of,
)
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import DIALLING, ConnectPolicy
from grpc_backoff.policy.hedging import HEDGE, HEDGING, CallPolicy, HedgingPolicy
from grpc_backoff.policy.pooling import PLAIN, POOLING, PoolPolicy
from grpc_backoff.policy.presets import CONNECT_PRESET, KIND_PRESETS, RETRY_PRESET
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import Setting, checks_of
from grpc_backoff.policy.strategy import Steps

PlainT = TypeVar("PlainT")

_GROWTH = frozenset({"backoff", "multiplier", "max_exponent", "max_delay", "jitter"})
"""The parts of a backoff that modify a delay and have no effect without one."""

_DELAYS = frozenset({"delay", "backoff", "steps"})
"""The parts that set a delay and have no effect without retries."""


_SYNONYMS = {"backoff_factor": "multiplier", "policy": "preset"}
"""Names of settings in other libraries, which no spelling would lead to the right name."""

CONNECTING = (*DIALLING, *POOLING)
"""All settings for a connect policy and a pool policy, in both options and files."""

POOLED = tuple(checks_of(POOLING))
"""The parts of a pool policy that have settings."""


def read_source(
    table: Sequence[Setting] | None, values: Mapping[str, tuple[str, object]], origin: str, unit: Unit | None = None
) -> Source:
    """Check the settings from one source and return the source.

    Args:
        table: the settings that are allowed; None for those of a channel's calls, which are either retried or hedged.
        values: for each setting's name, the key as the user knows it, and the value.
        origin: a description of the source.
        unit: the unit of times; None for the unit of each setting's option.

    Raises:
        OptionError: a value is invalid, two values contradict each other, or a name is unknown.
    """
    if table is None:
        table = HEDGING if HEDGE in values else RETRYING
    settings = {setting.name: setting for setting in table}
    if HEDGE in values:
        _check_hedging(table, settings, values)
    source: dict[str, SourceValue] = {}
    for name, (key, written) in values.items():
        setting = settings.get(name)
        if setting is None:
            prefix = key.removesuffix(f'"{name}"').removesuffix(name)
            raise unknown("setting", key, written, name, _words(table, prefix), prefix)
        part = setting.part or name
        if part in source:
            others = source[part].key
            problem = f"{others!r} and {key!r} set the same value: give only one of them"
            raise OptionError(key, written, f"no {key} besides {others}", problem=problem)
        source[part] = SourceValue(setting.check(key, written, unit or setting.unit), key, written, origin)
    _check_order(source)
    return source


def _check_hedging(
    table: Sequence[Setting], settings: Mapping[str, Setting], values: Mapping[str, tuple[str, object]]
) -> None:
    """Reject hedging where calls can only be retried, and beside a setting for retries (HG-9)."""
    key, written = values[HEDGE]
    if table is RETRYING:
        problem = f"{key!r} is only for the calls of a channel, and not for policies that others name"
        raise OptionError(key, written, "a retry policy", problem=problem)
    for other in RETRYING:
        if table is HEDGING and other.name in values and other.name not in settings:
            problem = f"{values[other.name][0]!r} besides {key!r}: a method is either retried or hedged"
            raise OptionError(*values[other.name], f"no setting for retries besides {key}", problem=problem)


def _check_order(source: Source) -> None:
    """Reject a maximum below the first wait if both come from the same source (CH-10)."""
    if "delay" in source and "max_delay" in source:
        least, most = source["delay"], source["max_delay"]
        if most.value < least.value:
            raise OptionError(most.key, most.written, f"at least {least.key} ({least.written})")


def _words(table: Sequence[Setting], prefix: str) -> dict[str, str]:
    """Map every word that may be meant as a setting to the setting's key: its name, its option and its part."""
    options = {setting.option.partition(".")[2]: setting.name for setting in table if setting.option}
    parts = {setting.part: setting.name for setting in table if setting.part}
    parts |= {word: name for word, name in _SYNONYMS.items() if any(name == setting.name for setting in table)}
    words = {setting.name: setting.name for setting in table}  # added first: suggestions list all names in this order
    words |= {word: name for word, name in (parts | options).items() if word not in words}
    return {word: prefix + name for word, name in words.items()}


def begin_with(name: str, key: str = "policy") -> Source:
    """Return a source that only names the policy to start from; errors refer to the name as `key`."""
    return {"preset": SourceValue(name, key, name, "name")}


def resolve_connect(
    sources: Sequence[Source], policies: Mapping[str, Source]
) -> tuple[ResolvedPolicy[ConnectPolicy], PoolPolicy]:
    """Return the connect policy described by these sources, highest precedence first, and the pool policy (BP-3).

    The connect policy comes with the values of both. The pool policy is without round_robin.

    Args:
        sources: the sources, excluding the values of their base preset, which is `grpc` if they name none.
        policies: the policies that the sources may name in addition to the presets.

    Raises:
        OptionError: a named policy does not exist, or the sources contradict each other.
    """
    chain = _chain(sources, policies, CONNECT_PRESET)
    resolved, values = compose(ConnectPolicy, chain), merged(chain)
    parts = {part: values[part] for part in POOLED}
    pooling = PLAIN._replace(**{part: value.value for part, value in parts.items() if value.key})
    return resolved._replace(values={**resolved.values, **parts}), pooling


def resolve_retry(sources: Sequence[Source], policies: Mapping[str, Source]) -> ResolvedPolicy[RetryPolicy]:
    """Return the retry policy described by these sources, highest precedence first (BP-3).

    If they set no delay, retries follow at once, and settings of growth and jitter have no effect. If they set no
    number of retries, nothing is retried, and settings of delays have no effect. If the first wait exceeds a cap that
    they do not set, waits do not grow; if it exceeds a cap that another source sets, the cap applies. Each is reported
    in `remarks` (BP-2).

    Args:
        sources: the sources, excluding the values of their base preset. If they name none, it is that of their
            strategy (`KIND_PRESETS`), or else `fixed`.
        policies: the policies that the sources may name in addition to the presets.

    Raises:
        OptionError: a named policy does not exist, or the sources contradict each other.
    """
    chain = _chain(sources, policies, RETRY_PRESET)
    defaults = [source for name, source in policies.items() if name in PRESET_SOURCES]
    written = [
        (part, value) for source in chain if source not in defaults for part, value in source.items() if value.key
    ]
    strategy = next(source["backoff"].value for source in chain if "backoff" in source)
    at_once = strategy != Steps.name and not any("delay" in source for source in chain)
    if at_once:
        for stray in (source["steps"] for source in chain if "steps" in source):
            if stray.key:
                raise misplaced("steps", stray, strategy)
        chain = [AT_ONCE_SOURCE, *chain]
    resolved = compose(RetryPolicy, chain)
    idle = _ineffective_at_once(written) if at_once else _ineffective(resolved.policy, chain, written)
    return resolved._replace(remarks=tuple(idle))


def _ineffective_at_once(written: Sequence[tuple[str, SourceValue]]) -> Iterator[str]:
    for part, value in written:
        if part in _GROWTH or (part == "preset" and value.value in PRESET_SOURCES):
            yield f"{value.key} has no effect without a delay"


def _ineffective(
    policy: RetryPolicy, chain: Sequence[Source], written: Sequence[tuple[str, SourceValue]]
) -> Iterator[str]:
    parts = {part for part, _ in written}
    if policy.max_attempts == 1 and "max_attempts" not in parts:
        idle = next((value.key for part, value in written if part in _DELAYS), None)
        if idle is not None:
            yield f"{idle} has no effect without retry or max_attempts"
    elif "delay" in parts:
        rank, capped = rank_of("delay", chain), rank_of("max_delay", chain)
        first, cap, growth = chain[rank]["delay"], chain[capped]["max_delay"], policy.backoff
        if growth.cap < first.value and rank <= capped:
            yield f"{first.key}={first.written}: no wait is longer than {cap.key} ({cap.written})"
        elif "max_delay" not in parts and growth.cap <= growth.strategy.value(1) < growth.strategy.value(2):
            yield f"waits do not grow, because {first.key} is not below max_delay, which is {cap.value:g} s unless set"


def resolve_hedging(source: Source) -> ResolvedPolicy[HedgingPolicy]:
    """Return the hedging policy that a source describes.

    Raises:
        OptionError: the number of copies is missing; it has no default.
    """
    if "max_attempts" not in source:
        raise lacks(source["hedging_delay"], "max_attempts")
    policy = HedgingPolicy(**{part: value.value for part, value in source.items()})
    defaults = source_of("default", {part.name: getattr(policy, part.name) for part in fields(policy)})
    return ResolvedPolicy(policy, {**defaults, **source})


def resolve_call(source: Source, policies: Mapping[str, Source]) -> ResolvedPolicy[CallPolicy]:
    """Return the policy for calls that a source describes, for hedging if it has a hedging delay."""
    return resolve_hedging(source) if "hedging_delay" in source else resolve_retry([source], policies)


def resolve_budget(source: Source) -> ResolvedPolicy[RetryBudget] | None:
    """Return the retry budget that a source describes; None if the source is empty.

    Raises:
        OptionError: one of the two numbers is missing; neither has a default.
    """
    if not source:
        return None
    for setting in BUDGETING:
        if setting.name not in source:
            raise lacks(next(iter(source.values())), setting.name)
    return resolve_plain(RetryBudget, source)


def resolve_plain(kind: Callable[..., PlainT], values: Source) -> ResolvedPolicy[PlainT]:
    """Build a policy whose parts are its fields."""
    return ResolvedPolicy(kind(**{part: value.value for part, value in values.items()}), values)


def _chain(sources: Sequence[Source], policies: Mapping[str, Source], default: str) -> list[Source]:
    """Return the sources, followed by the policies and presets that they inherit from.

    A policy with the name of a preset changes that preset: it inherits from the preset, and whatever names the preset
    inherits from it.
    """
    chain = list(sources)
    named = next((source["preset"] for source in sources if "preset" in source), _default_preset(_kind(chain, default)))
    seen: list[str] = []
    while named.value in policies and not (named.value in PRESET_SOURCES and named.value in seen[-1:]):
        if named.value in seen:
            circle = " -> ".join([*seen[seen.index(named.value) :], named.value])
            problem = f"{named.key!r} makes a policy inherit from itself: {circle}"
            raise OptionError(named.key, named.written, "a policy that does not inherit from itself", problem=problem)
        seen.append(named.value)
        chain.append(policies[named.value])
        default = named.value if named.value in PRESET_SOURCES else _kind(chain, RETRY_PRESET)
        named = chain[-1].get("preset", _default_preset(default))
    if named.value not in PRESET_SOURCES:
        known = [*dict.fromkeys([*policies, *PRESET_SOURCES])]
        meant = near_miss(named.value, {name.lower(): name for name in known})
        allowed = "the name of a policy" if meant else f"one of: {', '.join(known)}"
        if named.origin == "name" and " " in named.value and not meant:
            allowed = f"a policy string such as 'retry: 5, delay: 1s', or {allowed}"
        raise OptionError(named.key, named.written, allowed, meant)
    return [*chain, PRESET_SOURCES[named.value]]


def _kind(chain: Sequence[Source], default: str) -> str:
    """Return the preset from which a policy starts if it names none: that of its strategy, if it names one."""
    backoff = next((source["backoff"].value for source in chain if "backoff" in source), default)
    return backoff if default == RETRY_PRESET and backoff in KIND_PRESETS else default


def _default_preset(preset: str) -> SourceValue:
    return SourceValue(preset, "", preset, "")
