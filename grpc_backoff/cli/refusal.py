"""How a command rejects a request: one line on standard error, and exit status 2."""

from __future__ import annotations

import click

from grpc_backoff.cli.view import printable

__all__ = ["Refusal"]


class Refusal(click.ClickException):
    """The command line asks for something impossible; shown as one line."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(printable(message))
        self.exit_code = status  # type: ignore[misc] # click has it in the class
