"""How a command rejects a request, with one line on standard error and usually exit status 2, and how it warns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from grpc_backoff.base.base_errors import ConfigError, MissingExtra, OptionError, PolicyWarning
from grpc_backoff.cli.texts import printable


class Refusal(click.ClickException):
    """The command line asks for something that is not possible; the message is shown on one line."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(printable(message))
        self.exit_code = status  # type: ignore[misc] # click declares it on the class


def refused_target(error: Exception) -> Refusal:
    """Return the refusal of a target, with the option for TLS in place of grpc's function."""
    return Refusal(str(error).replace("passed to secure_channel for TLS", "and --tls"))


@contextmanager
def printing_warnings() -> Iterator[None]:
    """Print warnings about policies on standard error, each on one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolicyWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                click.echo(f"Warning: {printable(text)}", err=True)


@contextmanager
def refusing(status: int = 2) -> Iterator[None]:
    """Turn errors of policies, files and missing extras into refusals with this exit status, and print warnings."""
    with printing_warnings():
        try:
            yield
        except (OptionError, ConfigError, MissingExtra) as error:
            raise Refusal(str(error), status) from error
