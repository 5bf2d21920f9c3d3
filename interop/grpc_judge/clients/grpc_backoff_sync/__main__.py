"""The peer for this project's threaded channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import grpc

import grpc_backoff
from grpc_backoff import insecure_channel, secure_channel
from grpc_judge.clients.grpc_sync import call_all, credentials
from grpc_judge.clients.peer_program import CallOrder, command


def _channel(order: CallOrder) -> grpc.Channel:
    secret, options = credentials(order), [*order.core_options, *order.own_options]
    if secret is None:
        return insecure_channel(order.target, options)
    return secure_channel(order.target, secret, options)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = call_all(order, _channel(order))
    tally.say_done(grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
