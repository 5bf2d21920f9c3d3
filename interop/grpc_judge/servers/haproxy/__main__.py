"""The server program for HAProxy. `servers/README.md` specifies what the program does."""

from __future__ import annotations

import signal
from pathlib import Path

from grpc_judge.servers.keeper import Native, configuration, keep
from grpc_judge.servers.server_program import ServeOrder, command


def _command(order: ServeOrder, folder: Path) -> list[str]:
    template = Path(__file__).with_name("haproxy.cfg")
    return ["haproxy", "-W", "-q", "-f", str(configuration(template, folder, port=order.port, upstream=order.upstream))]


@command
def main(order: ServeOrder) -> None:
    """Run HAProxy as a master process and one worker."""
    haproxy = Native(
        name="haproxy",
        command=_command,
        version=["haproxy", "-v"],
        drain=signal.SIGUSR1,
        reload=signal.SIGUSR2,
    )
    keep(haproxy, order)


if __name__ == "__main__":
    main()
