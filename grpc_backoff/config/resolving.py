"""Turns the sources of a policy, which have been read and checked, into the policy.

A source may name another policy or a preset to start from; those follow it in precedence. Settings that have no effect
are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from grpc_backoff.base.base_errors import OptionError, near_miss
from grpc_backoff.config.settings import POOLED
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
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.hedging import CallPolicy, HedgingPolicy
from grpc_backoff.policy.pooling import PLAIN, PoolPolicy
from grpc_backoff.policy.presets import CONNECT_PRESET, KIND_PRESETS, RETRY_PRESET
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Steps

PlainT = TypeVar("PlainT")

_GROWTH = frozenset({"backoff", "multiplier", "max_exponent", "max_delay", "jitter"})
"""The parts of a backoff that modify a delay and have no effect without one."""

_DELAYS = frozenset({"delay", "backoff", "steps"})
"""The parts that set a delay and have no effect without retries."""


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
        if named.origin == "name" and not meant:
            allowed = f"a policy string such as 'retry: 5, delay: 1s', or {allowed}"
        raise OptionError(named.key, named.written, allowed, meant)
    return [*chain, PRESET_SOURCES[named.value]]


def _kind(chain: Sequence[Source], default: str) -> str:
    """Return the preset from which a policy starts if it names none: that of its strategy, if it names one."""
    backoff = next((source["backoff"].value for source in chain if "backoff" in source), default)
    return backoff if default == RETRY_PRESET and backoff in KIND_PRESETS else default


def _default_preset(preset: str) -> SourceValue:
    return SourceValue(preset, "", preset, "")
