"""The server program for nginx. `servers/README.md` specifies what the program does."""

from __future__ import annotations

import signal
from pathlib import Path

from grpc_judge.servers.keeper import Native, configuration, keep
from grpc_judge.servers.server_program import ServeOrder, command

_NEVER = "1d"


def _command(order: ServeOrder, folder: Path) -> list[str]:
    max_age = _NEVER if order.max_age_ms is None else f"{order.max_age_ms}ms"
    template = Path(__file__).with_name("nginx.conf")
    filled = configuration(template, folder, port=order.port, upstream=order.upstream, max_age=max_age)
    return ["nginx", "-p", str(folder), "-c", str(filled), "-e", "stderr"]


@command
def main(order: ServeOrder) -> None:
    """Run nginx as a master process and one worker."""
    nginx = Native(
        name="nginx",
        command=_command,
        version=["nginx", "-v"],
        drain=signal.SIGQUIT,
        reload=signal.SIGHUP,
    )
    keep(nginx, order)


if __name__ == "__main__":
    main()
