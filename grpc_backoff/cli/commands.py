"""The command group, and `run`; each other command is in its own module."""

from __future__ import annotations

import click

import grpc_backoff
from grpc_backoff.cli import run_program
from grpc_backoff.cli.config import config
from grpc_backoff.cli.connect import connect
from grpc_backoff.cli.ledger import ledger
from grpc_backoff.cli.refusal import Refusal
from grpc_backoff.cli.schedule import schedule_command

_IN_A_CHECKOUT = {"demo": "make demo", "simulate": "python -m benchmarks.dispersal"}
"""What were commands of the installed program, and what runs them now."""


class _Group(click.Group):
    """The commands; those that have left the program say where they are now."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _IN_A_CHECKOUT:
            raise Refusal(f"{cmd_name} is no longer installed: run '{_IN_A_CHECKOUT[cmd_name]}' in a source checkout")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(grpc_backoff.__version__, prog_name="grpc-backoff")
def cli() -> None:
    """Watch gRPC connections, show backoff policies, and inspect a ledger of calls."""


@cli.command(
    short_help="Run a Python program with this library's channels.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", metavar="PROGRAM [ARGS]...", nargs=-1, type=click.UNPROCESSED, required=True)
def run(words: tuple[str, ...]) -> None:
    """Run a Python program with this library's channels in place of grpc's.

    PROGRAM is a Python file, `-m` and a module, or a command installed in this Python's environment, such as uvicorn.
    Precede it with `--`. The program runs in this process as `python PROGRAM` would run it, after
    `grpc_backoff.install()`. Set options in the file named by the environment variable GRPC_BACKOFF_CONFIG.

    Processes that the program forks are covered; new interpreters that it starts are not.
    """
    run_program(words)


for command in (connect, schedule_command, config, ledger):
    cli.add_command(command)
