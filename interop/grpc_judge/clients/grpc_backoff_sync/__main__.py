"""The peer for this project's threaded channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import grpc

import grpc_backoff
from grpc_backoff import insecure_channel, secure_channel
from grpc_judge.clients.announcer import Announcer
from grpc_judge.clients.grpc_sync import call_all, credentials, hold_all
from grpc_judge.clients.peer_program import CallOrder, command


def _channel(order: CallOrder, announcer: Announcer) -> grpc.Channel:
    secret, options, listeners = credentials(order), [*order.core_options, *order.own_options], [announcer]
    if secret is None:
        return insecure_channel(order.target, options, listeners=listeners)
    return secure_channel(order.target, secret, options, listeners=listeners)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    announcer = Announcer(order.began)
    channel = _channel(order, announcer)
    if order.hold_ms is None:
        tally, announced = call_all(order, channel), None
    else:
        tally, announced = hold_all(order, channel, announcer.closed), announcer.announced
    tally.say_done(announced, grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
