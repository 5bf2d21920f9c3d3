"""The asyncio API: `insecure_channel` and `secure_channel` replace those of `grpc.aio`.

Internal: programs import from `grpc_backoff.aio`.
"""

from typing import TYPE_CHECKING

from grpc_backoff.aio.call_errors import NoConnectionError, RetriesExhaustedError
from grpc_backoff.aio.channel import Channel
from grpc_backoff.aio.constructors import insecure_channel, secure_channel
from grpc_backoff.engine.method import retrying

if TYPE_CHECKING:  # to type checkers, a module with `__getattr__` would have every name
    from grpc_backoff.aio.subscription import Subscription, subscribe
else:

    def __getattr__(name: str) -> object:
        """Import what subscriptions need on first use, because few programs have any."""
        if name in ("Subscription", "subscribe"):
            from grpc_backoff.aio import subscription  # noqa: PLC0415

            return getattr(subscription, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


__all__ = [
    "Channel",
    "NoConnectionError",
    "RetriesExhaustedError",
    "Subscription",
    "insecure_channel",
    "retrying",
    "secure_channel",
    "subscribe",
]
