"""`grpc-backoff demo`: runs the demo in `examples/demo`, which only a source checkout contains."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

import grpc_backoff
from grpc_backoff.base_errors import MissingExtra


@click.command(short_help="Demonstrate this library against real servers.")
@click.option("--threads", is_flag=True, help="Use the threaded channels, and compare them with plain grpc.")
@click.pass_context
def demo(context: click.Context, threads: bool) -> None:
    """Demonstrate this library against real servers and check the results.

    Several workers place orders continuously over one of this library's channels, while the server refuses
    connections, stalls, drops connections, recovers, is killed, comes back and is restarted. Then the same happens to a
    plain grpc channel.
    The exit status is 0 only if every check passes. Requires a source checkout.
    """
    checkout = Path(grpc_backoff.__file__).parents[1]
    if not (checkout / "examples" / "demo").is_dir():
        raise click.ClickException("the demo is not installed: run 'make demo' in a checkout of grpc-backoff")
    sys.path.insert(0, str(checkout))
    try:
        context.exit(0 if importlib.import_module("examples.demo").play(threads=threads) else 1)
    except MissingExtra as missing:
        raise click.ClickException(str(missing)) from missing
