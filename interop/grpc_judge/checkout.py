"""The commands of `python -m interop`: those of `grpc-judge`, and those that need a checkout of the repository.

`official`, `mutants` and `verify` are in the packages and modules of these names.
"""

from __future__ import annotations

import asyncio
import functools

import click
from rich.console import Console

from grpc_judge.clients.peer import find_peers
from grpc_judge.commands import PORT, cli
from grpc_judge.matrix.mutants import mutants
from grpc_judge.matrix.verify import verify
from grpc_judge.official import client as official_client
from grpc_judge.official import server as official_server
from grpc_judge.official.agreement import show
from grpc_judge.official.command import official
from grpc_judge.runner.build import build_all, peers_required
from grpc_judge.runner.program import Program, choose
from grpc_judge.runner.until_told import one_line_for, run_to_the_end, run_until_told
from grpc_judge.servers import find_servers

_MILLISECONDS = click.IntRange(min=1)
_SECONDS = click.FloatRange(min=0, min_open=True)

cli.add_command(mutants)
cli.add_command(official)
cli.add_command(verify)


@cli.command(short_help="Build the clients and servers in other languages.")
@click.option("--peers", "names", multiple=True, metavar="NAME", help="Only this peer. Repeatable.")
@click.option("--full", is_flag=True, help="Also the servers that only the full run tests.")
@click.pass_context
def build(context: click.Context, names: tuple[str, ...], full: bool) -> None:
    """Build the clients and the servers in other languages; with --peers, only these clients.

    Programs that are missing on this machine or cannot be built are listed. They are an error only if the environment
    has GRPC_BACKOFF_REQUIRE_PEERS=1.
    """
    with one_line_for(ValueError):
        programs: list[Program] = [*choose(find_peers(), "--peers", names)]
        if not names:
            programs += [server for server in find_servers() if full or not server.full]
    built = run_to_the_end(build_all(programs, click.echo))
    context.exit(1 if peers_required() and any(each.missing for each in built) else 0)


@cli.command()
@click.option("--control_port", type=PORT, required=True, help="The port of the service; 0 for any free port.")
@click.option("--retry_port", type=PORT, required=True, help="The port that clients dial; 0 for any free port.")
@click.option("--host", default="127.0.0.1", help="The IPv4 address of both ports.")
@click.option("--initial_backoff_ms", type=_MILLISECONDS, default=1000, help="The clients' INITIAL_BACKOFF.")
@click.option(
    "--turn_limit",
    type=_SECONDS,
    default=official_server.TURN_LIMIT,
    help="After how many seconds a client that did not call Stop loses its turn to a waiting one.",
)
def server(control_port: int, retry_port: int, host: str, initial_backoff_ms: int, turn_limit: float) -> None:
    """Run the server of gRPC's official reconnect test, until Ctrl-C.

    It prints its ports on one line, and then every client's gaps and verdict. If --initial_backoff_ms is shorter than
    the protocol's, the clients must have the same setting. Clients report their own maximum backoff.
    """
    console = Console()
    with one_line_for(OSError, RuntimeError, ValueError):
        serving = official_server.ReconnectServer(
            lambda verdict: show(verdict, console),
            host=host,
            control_port=control_port,
            retry_port=retry_port,
            initial_backoff=initial_backoff_ms / 1000,
            turn_limit=turn_limit,
        )
        run_until_told(_serve(serving))


async def _serve(server: official_server.ReconnectServer) -> None:
    async with server:
        click.echo(f"control_port={server.control_port} retry_port={server.retry_port}")
        await asyncio.Event().wait()


@cli.command(short_help="Have any official server judge grpc_backoff.")
@click.option("--server_control_port", type=PORT, required=True, help="The port of the server's service.")
@click.option("--server_retry_port", type=PORT, required=True, help="The port to dial.")
@click.option("--server_host", default="127.0.0.1", help="The address of both ports.")
@click.option("--max_reconnect_backoff_ms", type=_MILLISECONDS, help="MAX_BACKOFF, which is also sent to the server.")
@click.option("--initial_backoff_ms", type=_MILLISECONDS, help="INITIAL_BACKOFF; must be the server's.")
@click.option("--seconds", type=_SECONDS, default=official_client.SECONDS, help="How long to dial.")
@click.pass_context
def client(
    context: click.Context,
    server_control_port: int,
    server_retry_port: int,
    server_host: str,
    max_reconnect_backoff_ms: int | None,
    initial_backoff_ms: int | None,
    seconds: float,
) -> None:
    """Have grpc_backoff judged by any server of gRPC's official reconnect test.

    The exit status is 0 if grpc_backoff passes, both by the server's verdict and by ours on the gaps that the server
    saw, else 1.
    """
    with one_line_for(official_client.NotJudgedError, ValueError):
        request = official_client.Assignment(
            host=server_host,
            control_port=server_control_port,
            retry_port=server_retry_port,
            maximum=_seconds(max_reconnect_backoff_ms),
            initial=_seconds(initial_backoff_ms),
            seconds=seconds,
        )
        begun = functools.partial(click.echo, f"dialling {request.retry} for {seconds:g} s")
        outcome = run_until_told(official_client.reconnect(request, begun))
    if outcome is None:
        raise click.Abort
    show(outcome.ours, Console())
    click.echo(f"the server says: {'passed' if outcome.theirs else 'failed'}")
    context.exit(0 if outcome.passed else 1)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
