"""The listener that logs: one line for what a person on call would want to know, under the logger `grpc_backoff`.

Failed attempts, lost connections and recoveries are INFO, everything else DEBUG. No payload, metadata or token ever
comes this way: the records hold none.
"""

from __future__ import annotations

import logging

from grpc_backoff.connection import events

__all__ = ["log_event"]

_LOG = logging.getLogger("grpc_backoff")


def log_event(event: events.ConnectionEvent) -> None:
    """Log one event of a channel's connection."""
    match event:
        case events.AttemptStarted():
            _LOG.debug("%s: attempt %d, for at most %.3g s", event.target, event.attempt, event.limit)
        case events.AttemptFailed():
            _LOG.info(
                "%s: attempt %d failed after %.3g s, %s; next in %.3g s",
                event.target,
                event.attempt,
                event.took,
                event.failure,
                event.retry_in,
            )
        case events.Connected():
            first = event.attempt == 1 and event.connections == 1
            level = logging.DEBUG if first else logging.INFO
            _LOG.log(level, "%s: connected at attempt %d in %.3g s", event.target, event.attempt, event.took)
        case events.Disconnected():
            _LOG.info("%s: %s", event.target, event.failure)
        case events.BackoffReset():
            _LOG.debug("%s: backoff reset", event.target)
