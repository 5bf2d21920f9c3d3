"""Makes the attempts of a threaded call: on a connection that it has entered, each calls grpcio's own method."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from grpc_backoff.decide.calls.call_machine import Metadata, replaced
from grpc_backoff.engine.method import Arguments
from grpc_backoff.grpcio.sync_private import failed_call, guard_call
from grpc_backoff.sync.core_connector import Entry

if TYPE_CHECKING:
    from grpc_backoff.grpcio.shapes import BackgroundCall
    from grpc_backoff.sync.replay import Replay

Style = Literal["__call__", "with_call", "future"]
"""The name of a method of grpc's multicallables."""


class Attempts:
    """Makes the attempts of one call, each of which blocks its thread.

    Attributes:
        enter: enters a connection and returns it; None if there is none. Its argument has the connections that it
            enters only if no other serves; None if the call has just been made.
        replay: keeps the call's requests for further attempts; None if there is one request, or at most one attempt.
    """

    __slots__ = ("_arguments", "_request", "_style", "enter", "replay")

    def __init__(
        self,
        enter: Callable[[Container[object] | None], Entry | None],
        style: Style,
        request: Any,
        arguments: Arguments,
        replay: Replay | None = None,
    ) -> None:
        """Take a call's arguments; `style` is the method to call."""
        self.enter = enter
        self._style = style
        self._request = request
        self._arguments = arguments
        self.replay = replay

    def make(self, entry: Entry, seconds: float | None, instead: Metadata) -> Any:
        """Make an attempt with a timeout in seconds; return its result, or raise its error.

        `instead` replaces the caller's metadata with the same keys.
        """
        replay = self.replay
        request = self._request if replay is None else replay.attempt()
        try:
            result = self._call(entry, request, seconds, instead)
        except ValueError as error:  # the channel was closed
            raise entry.connection.refusal(error) from None
        finally:
            if replay is not None:
                replay.end(request)
        entry.connection.served = True
        return result

    def _call(self, entry: Entry, request: object, seconds: float | None, instead: Metadata) -> Any:
        """Call grpc's own method.

        The call is fail-fast in the core. If the connection breaks just as a wait-for-ready call is assigned to it, the
        core would keep the call waiting for the core's own next attempt, long after this channel is READY again.
        """
        _, metadata, credentials, _, compression = self._arguments
        return getattr(entry.method, self._style)(
            request,
            timeout=entry.left_of(seconds),  # by keyword, because tracers that wrap grpc's methods look for keywords
            metadata=replaced(metadata, instead) if instead else metadata or (),  # not None: some add pairs to it
            credentials=credentials,
            wait_for_ready=False,
            compression=compression,
        )


class BackgroundAttempts(Attempts):
    """Makes attempts that run in the background: futures, and streams of responses."""

    __slots__ = ()

    def make(self, entry: Entry, seconds: float | None, instead: Metadata) -> BackgroundCall:
        """Make an attempt as `Attempts.make` does; return grpcio's call object."""
        replay = self.replay
        request = self._request if replay is None else replay.attempt()
        entry.connection.streamed = True
        try:
            call: BackgroundCall = self._call(entry, request, seconds, instead)
        except ValueError as error:  # the channel was closed
            refusal = entry.connection.refusal(error)
            if refusal is error:
                raise
            call = failed_call(refusal)
        guard_call(call)
        if replay is not None and not call.add_callback(partial(replay.end, request)):
            replay.end(request)
        return call


class LoneAttempts(BackgroundAttempts):
    """Makes the attempts of a stream that is handed over as soon as one has begun, and stays on its connection."""

    __slots__ = ()

    def make(self, entry: Entry, seconds: float | None, instead: Metadata) -> BackgroundCall:
        """Make an attempt as `BackgroundAttempts.make` does; it has another entry, because `entry` ends first."""
        call = super().make(entry, seconds, instead)
        entry.beside().follow(call)
        return call
