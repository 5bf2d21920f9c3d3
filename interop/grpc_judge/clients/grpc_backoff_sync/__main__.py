"""The peer for this project's threaded channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import grpc

import grpc_backoff
from grpc_backoff import insecure_channel, secure_channel
from grpc_judge.clients.grpc_sync import call_all, opened
from grpc_judge.clients.peer_program import CallOrder, command


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = call_all(order, opened(order, order.own_options, insecure_channel, secure_channel))
    tally.say_done(grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
