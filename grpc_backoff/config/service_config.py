"""Reads a channel's service config (gRFC A6), once, into a `ServiceConfig`, and converts retry policies (BP-5).

JSON is represented by dicts and lists, except as the input of `read_json`. A `retryPolicy` supports only one kind of
backoff: exponential, with gRPC's own jitter. Parts of a policy that do not fit are reported, never silently dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.call_policies import MethodConfig, ServiceConfig
from grpc_backoff.config.core_options import ENABLE_RETRIES, SERVICE_CONFIG, Pairs, key_text, read_json
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.checks import STATUS_CODES, Unit, read_duration
from grpc_backoff.policy.exponential import Exponential
from grpc_backoff.policy.hedging import HEDGING, MOST_COPIES, HedgingPolicy
from grpc_backoff.policy.presets import NATIVE_JITTER
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import checks_of
from grpc_backoff.policy.strategy import Fixed

__all__ = [
    "Conversion",
    "from_service_config",
    "method_configs",
    "method_paths",
    "read_json",
    "read_service_config",
    "read_throttling",
    "to_service_config",
    "with_config",
]

_MOST_ATTEMPTS = 5
"""The most attempts that gRPC's cores make, even if a service config asks for more (gRFC A6)."""

_RETRYING = {
    "delay": "initialBackoff",
    "multiplier": "backoffMultiplier",
    "max_delay": "maxBackoff",
    "max_attempts": "maxAttempts",
    "codes": "retryableStatusCodes",
}
_HEDGING = {"hedging_delay": "hedgingDelay", "max_attempts": "maxAttempts", "non_fatal_codes": "nonFatalStatusCodes"}
_THROTTLING = {"max_tokens": "maxTokens", "token_ratio": "tokenRatio"}
_CHECKS = checks_of((*BUDGETING, *HEDGING, *RETRYING), "max_attempts")
_DIGITS = 9  # how many digits a Duration has after the point
_LEAST = 0.001
"""The shortest wait or timeout, in seconds: grpc's C-core truncates anything less to 0. It rejects that as a wait, and
takes it for no timeout."""
_MOST = 315_576_000_000  # the longest Duration, in seconds: 10,000 years
_LONGEST = 1e9
"""The longest timeout to apply, in seconds. grpcio takes a deadline after the year 2262 for one that has passed."""


def read_service_config(options: Pairs, values: Mapping[str, object], parsed: object) -> tuple[ServiceConfig, Pairs]:
    """Read the service config among a channel's options; return it, and the options left for the core.

    `values` has the value of each option that applies, and `parsed` is the result of `read_json`, from which what is
    not left to the core is removed.

    Retries are removed from the core's options, because the core's retries would multiply with this library's (RT-10).
    If a value for retries is invalid, the config is left unchanged, so that the core rejects it. It is also left
    unchanged if a multiplier is below 1: this library's policies do not allow that, so the core performs these retries.
    Timeouts are removed too, because the core would count them from up to two seconds before the call (CH-8).
    Nothing else is checked here, because the core rejects any other error at the first attempt. The exception is
    hedging, of which the core knows nothing (HG-9).

    Raises:
        OptionError: a `hedgingPolicy` has an invalid value, or is given together with a `retryPolicy`.
    """
    if not isinstance(parsed, dict):
        return ServiceConfig(), options
    entries = method_configs(parsed)
    retries: list[RetryPolicy | None] = [None] * len(entries)
    hedged: list[HedgingPolicy | None] = [None] * len(entries)
    budget = None
    enabled = bool(values.get(ENABLE_RETRIES, True))
    if enabled:
        hedged = [_read_hedging(entry) for entry in entries]
        with contextlib.suppress(OptionError):
            native = [entry.get("retryPolicy") for entry in entries]
            read = [None if policy is None else from_service_config(policy) for policy in native]
            retries, budget = read, read_throttling(parsed)  # all of it, or nothing
    methods: dict[str, MethodConfig] = {}
    for entry, retry, hedging in zip(entries, retries, hedged, strict=True):
        wait = entry.get("waitForReady")
        wait_for_ready = wait if isinstance(wait, bool) else None
        config = MethodConfig(wait_for_ready, _read_timeout(entry), hedging or retry)
        methods.update((path, config) for path in method_paths(entry))
    configured = enabled and any(entry.get("retryPolicy") is not None for entry in entries)
    if any(retries) or any(hedged) or any(config.timeout is not None for config in methods.values()):
        options = _left_to_core(options, parsed, entries, retried=any(retries))
    return ServiceConfig(methods, budget, left_to_core=configured and not any(retries)), options


def _read_timeout(entry: Mapping[str, object]) -> float | None:
    """Return a timeout that bounds calls, in seconds; any other is the core's to reject, or to take for no limit."""
    timeout = read_duration(entry.get("timeout"))
    return None if timeout is None or not _LEAST <= timeout <= _LONGEST else timeout


def _read_hedging(entry: Mapping[str, object]) -> HedgingPolicy | None:
    native = entry.get("hedgingPolicy")
    if native is None:
        return None
    if entry.get("retryPolicy") is not None:
        problem = "'retryPolicy' besides 'hedgingPolicy': a method is either retried or hedged"
        raise OptionError("hedgingPolicy", native, "no retryPolicy besides it", problem=problem)
    read = _read_object("hedgingPolicy", native, _HEDGING, {"hedgingDelay": "0s", "nonFatalStatusCodes": []})
    return HedgingPolicy(**{**read, "max_attempts": min(read["max_attempts"], MOST_COPIES)})


def _left_to_core(
    options: Pairs, parsed: dict[str, object], entries: Sequence[dict[str, object]], *, retried: bool
) -> Pairs:
    """Return the options with a service config that has only what this library leaves to the core."""
    for entry in entries:
        entry.pop("hedgingPolicy", None)
        if _read_timeout(entry) is not None:
            del entry["timeout"]
        if retried:
            entry.pop("retryPolicy", None)
    return with_config(options, parsed)


def with_config(options: Pairs, config: dict[str, object]) -> Pairs:
    """Return options with this service config instead of theirs."""
    import json  # noqa: PLC0415 - most channels have no service config

    text = json.dumps(config)
    return tuple((key, text if key_text(key) == SERVICE_CONFIG else value) for key, value in options)


def read_throttling(config: Mapping[str, object]) -> RetryBudget | None:
    """Return the retry budget described by a service config's `retryThrottling`; None if it has none.

    Raises:
        OptionError: gRPC would reject one of the values.
    """
    throttling = config.get("retryThrottling")
    return None if throttling is None else RetryBudget(**_read_object("retryThrottling", throttling, _THROTTLING))


def method_configs(config: object) -> list[dict[str, Any]]:
    """Return the entries of a service config's `methodConfig` that are objects."""
    entries = config.get("methodConfig") if isinstance(config, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def method_paths(entry: Mapping[str, object]) -> Iterator[str]:
    """Yield the paths of a `methodConfig`: `/service/method`, `/service/` for a service, or an empty path for all."""
    listed = entry.get("name")
    for name in listed if isinstance(listed, list) else ():
        if not isinstance(name, dict):
            continue
        service, method = name.get("service") or "", name.get("method") or ""
        if service:
            yield f"/{service}/{method}"
        elif not method:
            yield ""


class Conversion(NamedTuple):
    """A retry policy converted to a service config.

    Attributes:
        retry_policy: the value of `retryPolicy`; None if gRPC would not retry at all.
        misfits: what the `retryPolicy` cannot express, one sentence for each part of the policy.
    """

    retry_policy: dict[str, object] | None
    misfits: tuple[str, ...]


def to_service_config(policy: RetryPolicy) -> Conversion:
    """Return the `retryPolicy` that is closest to a policy, and what the conversion loses."""
    misfits = tuple(_misfits(policy))
    if policy.max_attempts == 1:
        return Conversion(None, misfits)
    strategy = policy.backoff.strategy
    native: dict[str, object] = {
        "maxAttempts": min(policy.max_attempts or _MOST_ATTEMPTS, _MOST_ATTEMPTS),
        "initialBackoff": _write_duration(policy.backoff.nominal(1)),
        "maxBackoff": _write_duration(policy.backoff.cap),
        "backoffMultiplier": strategy.multiplier if isinstance(strategy, Exponential) else 1.0,
        "retryableStatusCodes": sorted(policy.codes),
    }
    return Conversion(native, misfits)


def _misfits(policy: RetryPolicy) -> Iterator[str]:
    if policy.max_attempts is None or policy.max_attempts > _MOST_ATTEMPTS:
        wanted = policy.max_attempts or "unlimited"
        yield f"max_attempts = {wanted}: gRPC makes at most {_MOST_ATTEMPTS} attempts"
    yield from _misfits_of(policy.backoff)
    for name in ("timeout", "deadline", "max_server_delay"):
        if getattr(policy, name) is not None:
            yield f"{name} = {getattr(policy, name):g} s: a retryPolicy has no such setting"
    if policy.server_delay_jitter:
        yield f"server_delay_jitter = {policy.server_delay_jitter:g} s: gRPC waits exactly as long as the server asks"
    if policy.never_ran_only:
        yield "never_ran_only = true: gRPC retries by the code alone, also what a server may have executed"


def _misfits_of(backoff: BackoffPolicy) -> Iterator[str]:
    strategy = backoff.strategy
    if not isinstance(strategy, Exponential | Fixed):
        yield f"backoff = {strategy.name}: gRPC supports only exponential; the first wait is kept, without growth"
    elif isinstance(strategy, Exponential) and strategy.max_exponent is not None:
        yield f"max_exponent = {strategy.max_exponent}: gRPC limits growth only by max_delay"
    for name, seconds in (("delay", backoff.nominal(1)), ("max_delay", backoff.cap)):
        if seconds < _LEAST:
            yield f"{name} = {seconds:g} s: gRPC does not support waits below {_LEAST:g} s"
        elif seconds > _MOST:
            yield f"{name} = {seconds:g} s: gRPC does not support times above {_MOST:d} s"
    if backoff.jitter != NATIVE_JITTER:
        yield f"jitter = {backoff.jitter}: gRPC always uses {NATIVE_JITTER}"


def from_service_config(retry_policy: Mapping[str, object]) -> RetryPolicy:
    """Convert a service config's `retryPolicy` to a policy, with gRPC's jitter and defaults for everything else.

    Unlike gRPC, this does not cap `maxAttempts` at five.

    Raises:
        OptionError: a key is missing or has a value that gRPC would reject, or the multiplier is below 1, which this
            library does not allow.
    """
    read = _read_object("retryPolicy", retry_policy, _RETRYING)
    strategy = Exponential(read.pop("delay"), read.pop("multiplier"))
    backoff = BackoffPolicy(strategy=strategy, cap=read.pop("max_delay"), jitter=NATIVE_JITTER)
    return RetryPolicy(backoff=backoff, server_delay_jitter=0.0, **read)


def _read_object(
    name: str, native: object, keys: Mapping[str, str], defaults: Mapping[str, object] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the checked values of an object of a service config, by part; `keys` has the key of each part."""
    if not isinstance(native, Mapping):
        raise OptionError(name, native, "an object")
    written = {**defaults, **native}
    return {part: _check(part, f"{name}.{key}", written.get(key)) for part, key in keys.items()}


def _check(part: str, key: str, value: object) -> Any:
    if part == "max_attempts":
        return _attempts(key, value)
    if part in ("codes", "non_fatal_codes") and isinstance(value, list):  # codes may be given by number, too
        numbered = dict(enumerate(STATUS_CODES, 1))
        value = [numbered.get(code, code) if type(code) is int else code for code in value]
    return _CHECKS[part](key, value, Unit.JSON)


def _attempts(key: str, value: object) -> int:
    # JSON may write a whole number as 3.0, which protobuf's own parsers read as 3.
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 1 and value % 1 == 0:
        return int(value)
    raise OptionError(key, value, "a whole number above 1")


def _write_duration(seconds: float) -> str:
    seconds = min(max(seconds, _LEAST), _MOST)
    return f"{seconds:.{_DIGITS}f}".rstrip("0").rstrip(".") + "s"
