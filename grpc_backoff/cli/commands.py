"""The command group; each command is in its own module."""

from __future__ import annotations

import click

import grpc_backoff
from grpc_backoff.cli.config import config
from grpc_backoff.cli.connect import connect
from grpc_backoff.cli.ledger import ledger
from grpc_backoff.cli.refusal import Refusal
from grpc_backoff.cli.run import run
from grpc_backoff.cli.schedule import schedule_command

_IN_A_CHECKOUT = {"demo": "make demo", "simulate": "python -m benchmarks.dispersal"}
"""What were commands of the installed program, and what runs them now."""


class _Group(click.Group):
    """The commands; those that have left the program say where they are now."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; None if there is none."""
        if cmd_name in _IN_A_CHECKOUT:
            raise Refusal(f"{cmd_name} is no longer installed: run '{_IN_A_CHECKOUT[cmd_name]}' in a source checkout")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(grpc_backoff.__version__, prog_name="grpc-backoff")
def cli() -> None:
    """Watch gRPC connections, show backoff policies, and inspect a ledger of calls."""


for command in (connect, schedule_command, config, ledger, run):
    cli.add_command(command)
