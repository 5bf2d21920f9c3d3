"""The peer for grpcio's threaded channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import grpc

from grpc_judge.clients.grpc_sync import call_all, credentials
from grpc_judge.clients.peer_program import CallOrder, command


def _channel(order: CallOrder) -> grpc.Channel:
    secret = credentials(order)
    if secret is None:
        return grpc.insecure_channel(order.target, order.core_options)
    return grpc.secure_channel(order.target, secret, order.core_options)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    call_all(order, _channel(order)).say_done(grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
