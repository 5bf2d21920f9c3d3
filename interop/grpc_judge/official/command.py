"""Runs gRPC's own reconnect-test programs and compares verdicts with ours (IO-1): `python -m interop official`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click
from rich.console import Console

from grpc_judge.official.agreement import Agreement, show_agreement
from grpc_judge.official.programs import CLIENTS, SERVER, be_judged, judge_client
from grpc_judge.runner.build import build_all, peers_required
from grpc_judge.runner.process import ProgramError
from grpc_judge.runner.program import Program
from grpc_judge.runner.until_told import run_to_the_end

_TESTS: dict[Program, Callable[[Program], Awaitable[Agreement]]] = {
    **dict.fromkeys(CLIENTS, judge_client),
    SERVER: be_judged,
}


@click.command(short_help="Run gRPC's own reconnect-test programs.")
@click.pass_context
def official(context: click.Context) -> None:
    """Run gRPC's own reconnect-test programs: its Java client against our server, our client against its server.

    All tests run concurrently and take the nine minutes of the official test. Both sides of each test give a verdict.
    The exit status is 0 if they agree that the client passed, else 1. Programs that cannot be built on this machine are
    left out, which is an error only if the environment has GRPC_BACKOFF_REQUIRE_PEERS=1.
    """
    agreements, missing = run_to_the_end(_run_all())
    console = Console()
    for agreement in agreements:
        show_agreement(agreement, console)
    incomplete = missing and peers_required()
    context.exit(0 if all(agreement.passed for agreement in agreements) and not incomplete else 1)


async def _run_all() -> tuple[list[Agreement], list[Program]]:
    """Run all programs that can be built; return the verdicts, and the programs that could not be built."""
    missing = [program for program in _TESTS if await _lacks(program)]
    there = [_agreement(program) for program in _TESTS if program not in missing]
    return await asyncio.gather(*there), missing


async def _agreement(program: Program) -> Agreement:
    """Run a program's test. If the program cannot be run, the other tests continue."""
    try:
        return await _TESTS[program](program)
    except (OSError, ProgramError) as error:
        return Agreement(title=program.name, ours=None, theirs=None, why=str(error) or type(error).__name__)


async def _lacks(program: Program) -> bool:
    """Build a program and return whether it is missing. Builds run one at a time, because some share a folder."""
    (built,) = await build_all([program])
    click.echo(f"{program.name}: " + (f"left out, since {built.missing}" if built.missing else "540 s"))
    return bool(built.missing)
