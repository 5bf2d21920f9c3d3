"""The named policies. The only place where a default number stands."""

from __future__ import annotations

from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect

__all__ = ["CONNECT", "GRPC", "PRESETS"]

GRPC = BackoffPolicy(strategy=Exponential(base=1.0, multiplier=1.6), cap=120.0, jitter=Proportional(0.2))
"""gRPC's connection backoff: INITIAL_BACKOFF, MULTIPLIER, MAX_BACKOFF, JITTER."""

PRESETS = {"grpc": GRPC}
"""Backoffs by the name that the option `grpc_backoff.preset` takes."""

CONNECT = ConnectPolicy(
    backoff=GRPC,
    min_connect_timeout=20.0,
    jitter_first=False,
    stable_after=0.0,
    reconnect=Reconnect.LAZY,
    idle_timeout=1800.0,
)
"""What a channel does when nobody says otherwise."""
