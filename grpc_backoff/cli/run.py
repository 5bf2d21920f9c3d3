"""`grpc-backoff run`: runs an unmodified program on this library's channels."""

from __future__ import annotations

import click

from grpc_backoff.cli import program


@click.command(
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
    try:
        program.run(program.find(words))
    except program.ProgramError as error:
        raise click.UsageError(str(error)) from None
