"""The server program for etcd. `servers/README.md` specifies what the program does."""

from __future__ import annotations

import os
from pathlib import Path

from grpc_judge.servers.keeper import Native, free_port, keep
from grpc_judge.servers.server_program import HOST, ServeOrder, command


def _command(order: ServeOrder, folder: Path) -> list[str]:
    client, peer = f"http://{HOST}:{order.port}", f"http://{HOST}:{free_port()}"
    return [
        *("etcd", "--name", "one", "--data-dir", str(folder)),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
        *("--logger", "zap", "--log-level", "error"),
    ]


@command
def main(order: ServeOrder) -> None:
    """Run etcd."""
    etcd = Native(
        name="etcd",
        command=_command,
        version=["etcd", "--version"],
        environment={"ETCD_UNSUPPORTED_ARCH": os.uname().machine},  # etcd requires it unless on amd64
    )
    keep(etcd, order)


if __name__ == "__main__":
    main()
