"""Keeps grpcio's poller and its core's threads running while there are channels."""

from __future__ import annotations

import weakref
from typing import ClassVar

from grpc_backoff.grpcio.aio_private import core_channel
from grpc_backoff.grpcio.forks import core_stirred
from grpc_backoff.grpcio.private import NOWHERE, UNSEEN


class Polling:
    """Keeps grpcio's poller and its core's threads running, which otherwise stop when the last channel is closed.

    Without this, a program that creates a channel for each request would start and stop them each time.
    """

    __slots__ = ("__weakref__", "_channel")

    _kept: ClassVar[weakref.ReferenceType[Polling] | None] = None

    def __init__(self) -> None:
        """Start them, unless they are running already, by creating a channel that never connects."""
        self._channel = core_channel(NOWHERE, None, UNSEEN)
        weakref.finalize(self, core_stirred).atexit = False  # the core shuts down once this is freed

    @classmethod
    def shared(cls) -> Polling:
        """Return the existing object if it is still referenced, or else a new one."""
        kept = None if cls._kept is None else cls._kept()
        if kept is None:
            kept = cls()
            cls._kept = weakref.ref(kept)
        return kept
