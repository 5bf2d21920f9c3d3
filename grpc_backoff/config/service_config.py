"""gRPC's service config: retry policies to and from its JSON, as far as it goes (BP-5, gRFC A6).

A service config's `retryPolicy` knows one backoff: exponential, with gRPC's own jitter. What of a policy does not fit
is said, never left out in silence. JSON is dicts and lists here, but for `read_json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.checks import STATUS_CODES, codes, growth
from grpc_backoff.policy.presets import NATIVE_JITTER
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Exponential, Fixed
from grpc_backoff.record import record

__all__ = [
    "Conversion",
    "from_service_config",
    "method_configs",
    "method_paths",
    "read_duration",
    "read_json",
    "read_throttling",
    "to_service_config",
]

MOST_ATTEMPTS = 5
"""gRPC's cores make no more tries than this, whatever a service config says (gRFC A6)."""

_KEYS = ("maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes")
_DURATION = re.compile(r"(\d{1,12})(\.\d{1,9})?s")  # the JSON form of google.protobuf.Duration
_NANOSECONDS = 9  # as many digits has a Duration behind the point
_LEAST = 0.001  # what is less is 0 to grpc's C-core, which refuses that
_MOST = 315_576_000_000  # 10,000 years, the largest Duration


@record
class Conversion(NamedTuple):
    """A policy as a service config says it.

    Attributes:
        retry_policy: the value of `retryPolicy`; None where gRPC would not retry at all.
        misfits: what it does not say of the policy, each in a sentence.
    """

    retry_policy: dict[str, Any] | None
    misfits: tuple[str, ...]


def to_service_config(policy: RetryPolicy) -> Conversion:
    """Return the `retryPolicy` that comes nearest to a policy, and what is lost on the way."""
    misfits = tuple(_misfits(policy))
    if policy.max_attempts == 1:
        return Conversion(None, misfits)
    strategy = policy.backoff.strategy
    first = policy.backoff.nominal(1)
    return Conversion(
        {
            "maxAttempts": min(policy.max_attempts or MOST_ATTEMPTS, MOST_ATTEMPTS),
            "initialBackoff": _write_duration(first),
            "maxBackoff": _write_duration(policy.backoff.cap),
            "backoffMultiplier": strategy.multiplier if isinstance(strategy, Exponential) else 1.0,
            "retryableStatusCodes": sorted(policy.codes),
        },
        misfits,
    )


def _misfits(policy: RetryPolicy) -> Iterator[str]:
    if policy.max_attempts is None or policy.max_attempts > MOST_ATTEMPTS:
        wanted = policy.max_attempts or "unlimited"
        yield f"max_attempts = {wanted}: gRPC makes {MOST_ATTEMPTS} at most"
    yield from _misfits_of(policy.backoff)
    for name in ("timeout", "deadline", "max_server_delay"):
        if getattr(policy, name) is not None:
            yield f"{name} = {getattr(policy, name):g} s: a retryPolicy has none"
    if policy.server_delay_jitter:
        yield f"server_delay_jitter = {policy.server_delay_jitter:g} s: gRPC waits exactly as long as it is told"


def _misfits_of(backoff: BackoffPolicy) -> Iterator[str]:
    strategy = backoff.strategy
    if not isinstance(strategy, Exponential | Fixed):
        yield f"backoff = {strategy.name}: gRPC's is exponential; the first wait is kept, without growth"
    elif isinstance(strategy, Exponential) and strategy.max_exponent is not None:
        yield f"max_exponent = {strategy.max_exponent}: gRPC's growth ends at max_delay alone"
    for name, seconds in (("delay", backoff.nominal(1)), ("max_delay", backoff.cap)):
        if seconds < _LEAST:
            yield f"{name} = {seconds:g} s: gRPC's cores know no wait below {_LEAST:g} s"
        elif seconds > _MOST:
            yield f"{name} = {seconds:g} s: gRPC knows no time above {_MOST:d} s"
    if backoff.jitter != NATIVE_JITTER:
        yield f"jitter = {backoff.jitter}: gRPC's is {NATIVE_JITTER}, always"


def from_service_config(retry_policy: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy that a service config's `retryPolicy` describes: gRPC's jitter, and none of what it lacks.

    More than five attempts are taken at their word, which is what gRPC does not do.

    Raises:
        OptionError: a key is missing or has a value that gRPC would refuse, or that no policy here can have: a
            multiplier below 1.
    """
    if not isinstance(retry_policy, Mapping):
        raise OptionError("retryPolicy", retry_policy, "an object")
    given = {key: (f"retryPolicy.{key}", retry_policy.get(key)) for key in _KEYS}
    return RetryPolicy(
        backoff=BackoffPolicy(
            strategy=Exponential(_time(*given["initialBackoff"]), growth(*given["backoffMultiplier"])),
            cap=_time(*given["maxBackoff"]),
            jitter=NATIVE_JITTER,
        ),
        max_attempts=_attempts(*given["maxAttempts"]),
        server_delay_jitter=0.0,
        codes=_codes(*given["retryableStatusCodes"]),
    )


def _attempts(key: str, value: object) -> int:
    # Numbers in JSON may come as 3.0; protobuf's own parsers take that for 3.
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 1 and value % 1 == 0:
        return int(value)
    raise OptionError(key, value, "a whole number above 1")


def _time(key: str, value: object) -> float:
    seconds = read_duration(value)
    if not seconds:
        raise OptionError(key, value, "a duration above 0, such as '0.5s'")
    return seconds


def _codes(key: str, value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise OptionError(key, value, "a list of status codes")
    return codes(key, [_code(code) for code in value])


def _code(code: object) -> object:
    """Return a status code's name from its number; whatever else stands there is left."""
    if isinstance(code, int) and not isinstance(code, bool) and 1 <= code <= len(STATUS_CODES):
        return STATUS_CODES[code - 1]
    return code


def read_duration(value: object) -> float | None:
    """Return the seconds of a protobuf Duration in JSON, such as "1.5s"; None if it is none."""
    matched = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return None if matched is None else float(matched[1] + (matched[2] or ""))


def _write_duration(seconds: float) -> str:
    seconds = min(max(seconds, _LEAST), _MOST)
    return f"{seconds:.{_NANOSECONDS}f}".rstrip("0").rstrip(".") + "s"


def read_throttling(config: Mapping[str, Any]) -> RetryBudget | None:
    """Return the retry budget that a service config's `retryThrottling` describes; None if it has none.

    Raises:
        OptionError: it has a value that gRPC would refuse.
    """
    throttling = config.get("retryThrottling")
    if throttling is None:
        return None
    if not isinstance(throttling, Mapping):
        raise OptionError("retryThrottling", throttling, "an object")
    return RetryBudget(throttling.get("maxTokens"), throttling.get("tokenRatio"))  # type: ignore[arg-type] # it checks


def read_json(text: object) -> Any:
    """Return what a service config's text says; None if gRPC's cores would not take it for JSON either.

    They are stricter than Python: UTF-8 alone, no key twice in one object, and nothing that is not a number.
    """
    if not isinstance(text, str | bytes):
        return None
    import json  # noqa: PLC0415 - most channels have no service config

    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("a key stands twice")
    return read


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def method_configs(config: object) -> list[dict[str, Any]]:
    """Return the entries of a service config's `methodConfig`, as far as they are objects."""
    entries = config.get("methodConfig") if isinstance(config, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def method_paths(entry: Mapping[str, Any]) -> Iterator[str]:
    """Return what a `methodConfig` is for: `/service/method`, `/service/` for a whole service, an empty one for all."""
    listed = entry.get("name")
    for name in listed if isinstance(listed, list) else ():
        if not isinstance(name, dict):
            continue
        service, method = name.get("service") or "", name.get("method") or ""
        if service:
            yield f"/{service}/{method}"
        elif not method:
            yield ""
