"""Tests our channel against every server and everything that can happen to it: `python -m interop servers`."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from grpc_judge.runner.build import build_all, peers_required
from grpc_judge.runner.choice import choose
from grpc_judge.runner.manifest import ManifestError
from grpc_judge.runner.process import ProgramError, limited
from grpc_judge.runner.until_told import run_to_the_end
from grpc_judge.runner.written import write
from grpc_judge.servers.case import Case
from grpc_judge.servers.case_results import CaseResult, CaseResults, to_json
from grpc_judge.servers.case_view import CaseView
from grpc_judge.servers.demands import judge
from grpc_judge.servers.happenings import SHORT
from grpc_judge.servers.server import Server, find_servers

__all__ = ["UPSTREAM", "cases", "run_all", "servers"]

UPSTREAM = "grpc_python"
"""The folder of the server that runs behind proxies."""

_AT_ONCE = 2 * (os.cpu_count() or 1)
"""How many cases run concurrently. All of them make calls continuously."""

_LIMIT = 180.0
"""How long a case may take, in seconds: two of the slowest starts and the calls in between."""


@click.command()
@click.option("--servers", "names", multiple=True, metavar="NAME", help="Test only this server; may be repeated.")
@click.option("--short", is_flag=True, help="Test two happenings for each server.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all results here.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a Markdown page here.")
@click.option("--at-once", type=click.IntRange(min=1), default=_AT_ONCE, help="How many cases run side by side.")
@click.pass_context
def servers(
    context: click.Context, names: tuple[str, ...], short: bool, file: Path | None, report: Path | None, at_once: int
) -> None:
    """Test grpc_backoff against servers that are killed, drained, aged, frozen and reloaded.

    The exit status is 0 if every case passes, else 1. Servers that are missing on this machine are left out, which is
    an error only if the environment has GRPC_BACKOFF_REQUIRE_PEERS=1.
    """
    try:
        every = find_servers()
        chosen = choose(every, "--servers", names)
    except (ManifestError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    view = CaseView()
    results = run_to_the_end(run_all(chosen, _upstream(every), view, short=short, at_once=at_once))
    view.show(results)
    if file is not None:
        write(to_json(results), file)
    if report is not None:
        from grpc_judge.servers.page import page  # noqa: PLC0415 - most runs do not need it

        report.write_text(page(results))
    context.exit(0 if results.passed(require_all=peers_required()) else 1)


def _upstream(every: Iterable[Server]) -> Server:
    return next(server for server in every if server.folder.name == UPSTREAM)


def cases(chosen: Iterable[Server], upstream: Server, *, short: bool) -> list[Case]:
    """Return the cases to run."""
    return [
        Case(server=server, upstream=upstream if server.proxy else None, happening=happening)
        for server in chosen
        for happening in server.happenings
        if not short or (happening in SHORT and happening.for_proxies == server.proxy)
    ]


async def run_all(
    chosen: Sequence[Server], upstream: Server, view: CaseView, *, short: bool = False, at_once: int = _AT_ONCE
) -> CaseResults:
    """Run every case and judge our channel in each."""
    began = datetime.now(UTC).astimezone()
    built = await build_all(chosen)
    missing = {each.program.name: each.missing for each in built if each.missing}
    planned = cases([server for server in chosen if server.name not in missing], upstream, short=short)
    turns, ended = asyncio.Semaphore(at_once), 0
    with tempfile.TemporaryDirectory() as folder:

        async def one(case: Case) -> CaseResult:
            nonlocal ended
            async with turns:
                result = await _perform(case, folder)
            ended += 1
            view.ended(result, ended, len(planned))
            return result

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(case)) for case in planned]
    found = tuple(task.result() for task in running)
    return CaseResults(began=began, short=short, upstream=upstream.name, cases=found, missing=missing)


async def _perform(case: Case, folder: str) -> CaseResult:
    try:
        async with limited(_LIMIT):
            observation = await case.perform(folder)
    except ProgramError as error:
        return CaseResult(server=case.server, happening=case.happening, fault=str(error))
    verdicts = judge(observation)
    return CaseResult(server=case.server, happening=case.happening, verdicts=verdicts, observation=observation)
