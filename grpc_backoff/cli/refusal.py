"""How a command says that it cannot do what it is asked for: one line on standard error, and the status 2."""

from __future__ import annotations

import click

from grpc_backoff.cli.view import printable

__all__ = ["Refusal"]


class Refusal(click.ClickException):
    """The command line asks for something that cannot be; shown as one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
