"""A server whose streams stay open, in a process of its own: `python -m benchmarks.holding ADDRESS`."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from tests.echo import Echo, serving


class _Holding(Echo):
    async def Down(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002, N802 - grpc's names
        yield request
        await asyncio.Event().wait()


@contextlib.contextmanager
def holding(address: str = "127.0.0.1:0", inside: Sequence[str] = ()) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run the server, with `inside` as the command that runs it; yield its port and its process."""
    command = [*inside, sys.executable, "-m", "benchmarks.holding", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline()), server
        finally:
            server.kill()


async def _main(address: str) -> None:
    async with serving(_Holding(), address=address) as port:
        print(port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
