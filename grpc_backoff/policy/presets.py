"""The presets, which are named policies. Defaults that all of them share are in the settings of `policy`.

`PRESETS` holds the parts of each preset, so that files, options and policy strings can start from a preset and change
some of its parts: the name of a strategy as `backoff`, the strategy's fields, `max_delay`, `jitter`, and the policy's
other fields. `CONNECT`, `GRPC` and those in `RETRY_PRESETS` are complete policies. The former two are defined where no
table of presets has to be read for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import CONNECT, DIALLING, GRPC, GRPC_GROWTH, ConnectPolicy
from grpc_backoff.policy.jitter import Additive, Equal, NoJitter, Scaled
from grpc_backoff.policy.pooling import PLAIN
from grpc_backoff.policy.proportional import Proportional
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import defaults_of
from grpc_backoff.policy.strategy import PARTS_OF_STRATEGIES, STRATEGIES

if TYPE_CHECKING:
    from grpc_backoff.policy.ledger_settings import LEDGER
else:

    def __getattr__(name: str) -> object:
        """Import `LEDGER` when it is asked for, because most programs have no ledger."""
        if name != "LEDGER":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from grpc_backoff.policy.ledger_settings import LEDGER  # noqa: PLC0415

        return LEDGER


__all__ = [
    "AT_ONCE",
    "CONNECT",
    "CONNECT_PRESET",
    "GRPC",
    "KIND_PRESETS",
    "LEDGER",
    "NATIVE_JITTER",
    "PRESETS",
    "RETRY_PRESET",
    "RETRY_PRESETS",
]

_ASKED_FOR = {"multiplier": 2.0, "max_delay": 30.0, "jitter": NoJitter(), "max_attempts": 1}
"""What the presets `fixed`, `linear` and `exponential` share: a multiplier of 2, a cap of 30 s, no jitter, and no
retries unless requested (RT-1)."""

_DOUBLING = {"backoff": "exponential", "multiplier": 2.0, "jitter": Scaled(0.5, 1.5)}
"""What the presets `standard`, `aggressive`, `conservative` and `background` share, and, but for the jitter,
`contention` and `durable`."""

_OUTLIVED = frozenset(
    {"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
"""The codes that the preset `durable` retries: all but those that a retry cannot fix (RT-2), conflicts (LG-8), and
UNAUTHENTICATED (RT-4)."""

_TABLE: Mapping[str, Mapping[str, object]] = {
    "grpc": {
        "backoff": "exponential",
        "delay": GRPC_GROWTH.base,
        "multiplier": GRPC_GROWTH.multiplier,
        "max_delay": GRPC.cap,
        "jitter": GRPC.jitter,
    },
    "contention": {
        **_DOUBLING,
        "delay": 0.010,
        "max_exponent": 6,
        "max_delay": 1.0,
        "jitter": Additive(0.5),
        "max_attempts": 7,
        "deadline": 30.0,
        "server_delay_jitter": 0.0,
        "codes": frozenset({"ABORTED", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}),
    },
    "steps": {
        "backoff": "steps",
        "steps": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "multiplier": 2.0,
        "max_delay": 60.0,
        "jitter": Proportional(0.1, then_cap=True),
        "max_server_delay": 60.0,
    },
    "standard": {**_DOUBLING, "delay": 1.0, "max_delay": 30.0, "max_attempts": 5},
    "aggressive": {**_DOUBLING, "delay": 0.5, "max_delay": 10.0, "max_attempts": 5},
    "conservative": {**_DOUBLING, "delay": 2.0, "max_delay": 30.0, "max_attempts": 5},
    "background": {**_DOUBLING, "delay": 2.0, "max_delay": 60.0, "max_attempts": 7},
    "durable": {
        **_DOUBLING,
        "delay": 2.0,
        "max_delay": 600.0,
        "jitter": Equal(),
        "deadline": 259_200.0,  # three days
        "codes": _OUTLIVED,
    },
    "fixed": {"backoff": "fixed", **_ASKED_FOR},
    "linear": {"backoff": "linear", **_ASKED_FOR},
    "exponential": {"backoff": "exponential", **_ASKED_FOR},
}

_COMMON = {**defaults_of(DIALLING), **PLAIN._asdict(), **defaults_of(RETRYING)}
"""The parts that are the same in every preset unless it says otherwise."""

PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {name: MappingProxyType({**_COMMON, **parts}) for name, parts in _TABLE.items()}
)
"""The parts of each preset, by name. The last three leave the delay to the user."""

CONNECT_PRESET = "grpc"
"""The preset from which a connect policy starts if it names none."""

RETRY_PRESET = "fixed"
"""The preset from which a retry policy starts if it names none."""

KIND_PRESETS = frozenset({"fixed", "linear", "exponential"})
"""The presets that are named after a strategy. A policy with this strategy that names no preset starts from it."""

AT_ONCE: Mapping[str, object] = MappingProxyType({"backoff": "fixed", "delay": 0.0, "jitter": NoJitter()})
"""The parts of a backoff without waits: each retry follows at once."""

PolicyT = TypeVar("PolicyT", ConnectPolicy, RetryPolicy)


def build(kind: type[PolicyT], parts: Mapping[str, Any]) -> PolicyT:
    """Build a policy of this class from its parts; every required part must be present."""
    named = {part.name: parts[part.name] for part in fields(kind) if part.init and part.name != "backoff"}
    strategy = next(strategy for strategy in STRATEGIES if strategy.name == parts["backoff"])
    made = strategy(*(parts[part] for part in PARTS_OF_STRATEGIES[strategy.name] if part in parts))
    backoff = BackoffPolicy(strategy=made, cap=parts["max_delay"], jitter=parts["jitter"])
    return kind(backoff=backoff, **named)


NATIVE_JITTER = Proportional(0.2)
"""The jitter that gRPC's own cores apply to retries (gRFC A6); no service config can change it."""

RETRY_PRESETS: Mapping[str, RetryPolicy] = MappingProxyType(
    {name: build(RetryPolicy, parts) for name, parts in PRESETS.items() if {"delay", "steps"} & set(parts)}
)
"""The presets as retry policies, by name, except those without a delay."""
