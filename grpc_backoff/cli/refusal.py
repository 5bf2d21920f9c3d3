"""How a command rejects a request: one line on standard error, and usually exit status 2."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from grpc_backoff.base.base_errors import ConfigError, MissingExtra, OptionError, PolicyWarning
from grpc_backoff.cli.view import printable


class Refusal(click.ClickException):
    """The command line asks for something that is not possible; the message is shown on one line."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(printable(message))
        self.exit_code = status  # type: ignore[misc] # click declares it on the class


@contextmanager
def refusing(status: int = 2) -> Iterator[None]:
    """Turn errors of policies, files and missing extras into refusals with this exit status, and print warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolicyWarning)
        try:
            yield
        except (OptionError, ConfigError, MissingExtra) as error:
            raise Refusal(str(error), status) from error
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                click.echo(f"Warning: {printable(text)}", err=True)
