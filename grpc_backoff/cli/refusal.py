"""How a command rejects a request: one line on standard error, and usually exit status 2."""

from __future__ import annotations

import click

from grpc_backoff.cli.view import printable


class Refusal(click.ClickException):
    """The command line asks for something that is not possible; the message is shown on one line."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(printable(message))
        self.exit_code = status  # type: ignore[misc] # click declares it on the class
