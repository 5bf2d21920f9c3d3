"""The commands of `grpc-judge`, with their options and output. `run` is in `matrix/`."""

from __future__ import annotations

import asyncio
from typing import BinaryIO, TextIO

import click

from grpc_judge.conformance import PROTOCOL
from grpc_judge.flaky import FlakyServer, Tls, Working, read_script, write_script
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.control import controlled
from grpc_judge.matrix.run import choose_clauses, run
from grpc_judge.matrix.scenarios import STAGINGS
from grpc_judge.runner.until_told import one_line_for, run_until_told

PORT = click.IntRange(0, 65535)


# gRPC's official programs spell their flags with underscores; hyphens are accepted as well.
@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("-", "_"),
        "show_default": True,
    },
)
@click.version_option(package_name="grpc-backoff-interop")
def cli() -> None:
    """Test gRPC clients against servers that fail and judge how they connect."""


cli.add_command(run)


@cli.command(short_help="Show what clauses require and where that is written.")
@click.argument("wanted", nargs=-1, metavar="[CLAUSE]...")
def explain(wanted: tuple[str, ...]) -> None:
    """Show what these clauses or rules require, their source and how they are measured; by default, all."""
    with one_line_for(ValueError):
        clauses = choose_clauses(wanted, "CLAUSE")
    for clause in clauses:
        click.secho(f"{clause.rule} {clause.name} ({clause.level.value})", bold=True)
        staging = STAGINGS[clause.scenario]
        click.echo(
            f"  {clause.says}\n"
            f"  source   {clause.source}\n"
            f"  seen by  a server that {clause.scenario.value}\n"
            f"  script   {write_script(staging.script(PROTOCOL))}"
        )


@cli.command(short_help="Run a server that fails as its script says.", epilog=f"Behaviours: {', '.join(BY_NAME)}.")
@click.option("--port", type=PORT, required=True, help="The failing port; 0 for any free port.")
@click.option("--control_port", type=PORT, required=True, help="The control port; 0 for any free port.")
@click.option("--host", default="127.0.0.1", help="The IPv4 address of both ports.")
@click.option("--script", type=click.File(), help="What to do with each connection; by default, serve it.")
@click.option("--cert", type=click.File("rb"), help="Use TLS with this certificate (PEM) and --key.")
@click.option("--key", type=click.File("rb"), help="The certificate's private key (PEM).")
def flaky(
    port: int,
    control_port: int,
    host: str,
    script: TextIO | None,
    cert: BinaryIO | None,
    key: BinaryIO | None,
) -> None:
    """Run a server that fails as its script says, one behaviour per connection, until Ctrl-C.

    It prints its ports on one line. A script is a JSON list of steps, such as {"behaviour": "accept_close", "times":
    3}, {"behaviour": "refuse", "lasting": 2} or {"behaviour": "slow_settings", "delay": 0.5}. The service
    interop.v1.FlakyServer on the control port can start another script.
    """
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key go together")
    with one_line_for(OSError, RuntimeError, ValueError):
        tls = Tls(cert.read(), key.read()) if cert and key else None
        run_until_told(
            _serve_flaky(
                FlakyServer(read_script(script.read()) if script else Working(), tls, host, port), host, control_port
            )
        )


async def _serve_flaky(server: FlakyServer, host: str, control_port: int) -> None:
    async with server, controlled(server, host, control_port) as target:
        click.echo(f"port={server.port} control_port={target.rpartition(':')[2]}")
        await asyncio.Event().wait()
