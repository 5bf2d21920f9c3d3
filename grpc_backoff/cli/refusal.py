"""How a command says that it cannot do what it is asked for: one line on standard error, and the status 2."""

from __future__ import annotations

import click

from grpc_backoff.cli.view import printable

__all__ = ["Refusal"]


class Refusal(click.ClickException):
    """The command line asks for something that cannot be; shown as one line."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(printable(message))
        self.exit_code = status  # type: ignore[misc] # click has it in the class
