"""The command group; each command is in its own module."""

from __future__ import annotations

import click

import grpc_backoff
from grpc_backoff.cli.config import config
from grpc_backoff.cli.connect import connect
from grpc_backoff.cli.demo import demo
from grpc_backoff.cli.ledger import ledger
from grpc_backoff.cli.run import run
from grpc_backoff.cli.schedule import schedule_command
from grpc_backoff.cli.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(grpc_backoff.__version__, prog_name="grpc-backoff")
def cli() -> None:
    """Watch gRPC connections, show and simulate backoff policies, and inspect a ledger of calls."""


for command in (connect, demo, schedule_command, simulate, config, ledger, run):
    cli.add_command(command)
