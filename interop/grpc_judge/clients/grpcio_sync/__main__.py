"""The peer for grpcio's threaded channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import grpc

from grpc_judge.clients.grpc_sync import call_all, opened
from grpc_judge.clients.peer_program import CallOrder, command


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    channel = opened(order, order.core_options, grpc.insecure_channel, grpc.secure_channel)
    call_all(order, channel).say_done(grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
