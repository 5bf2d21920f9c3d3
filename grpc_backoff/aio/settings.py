"""The keyword arguments of this library's channels, beside grpc's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from grpc_backoff.aio.listeners import Listener
    from grpc_backoff.calls.hooks import RetryHooks
    from grpc_backoff.config.file import Config
    from grpc_backoff.config.methods import Retry
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.policy.backoff import Random
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.connect import ConnectPolicy

__all__ = ["ChannelSettings"]


class ChannelSettings(TypedDict, total=False):
    """What a channel can be told beside what grpc's own can; each may be left out.

    Attributes:
        policy: how to connect; overrides the options and the file.
        config: a TOML file, or one that was read (`grpc_backoff.read_config`); the options override it. Without it,
            the option `grpc_backoff.config` names one, or the environment variable `GRPC_BACKOFF_CONFIG`.
        listeners: called on the event loop with every event of the connection, and of calls that are retried.
        rng: where jitter comes from; the operating system by default (CB-11).
        clock: a monotonic clock; the event loop's by default (CB-12).
        retry: how calls are retried: a policy, the name of one, or a policy string; or a mapping from methods, services
            and `*` to such. It overrides the service config and the file. Without any, nothing is retried.
        retry_budget: what limits the retries of this target while most of its calls fail (RT-9).
        retry_hooks: what to call when calls fail that have a policy (RT-4 to RT-6).
    """

    policy: ConnectPolicy | None
    config: str | os.PathLike[str] | Config | None
    listeners: Sequence[Listener]
    rng: Random | None
    clock: Clock | None
    retry: Retry | Mapping[str, Retry] | None
    retry_budget: RetryBudget | None
    retry_hooks: RetryHooks | None
