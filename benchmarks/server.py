"""The echo server that is called, in a process of its own: what it costs must not be counted as the client's."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.echo import serving

__all__ = ["echo_server"]

_ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def echo_server() -> Iterator[str]:
    """Run the server; give its target."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the server did not start; its own words are above")
            yield f"127.0.0.1:{port}"
        finally:
            process.stdin.close()  # tells it to end, and so does the death of this process
            process.wait()


async def _serve_until_told() -> None:
    async with serving() as port:
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve_until_told())
