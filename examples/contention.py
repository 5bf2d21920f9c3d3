"""Has many clients commit to one etcd key at once, and measures how many succeed and how long they take.

    python examples/contention.py [--clients 2,5,10,20] [--commits K] [--work MS] [--steady] [--against POLICY]
                                  [--seed S] [--json FILE]

`race.py` contains the clients, `gateway.py` contains the service that they call, and `etcd.py` starts the etcd server
in which the service keeps its counters. `docs/contention.md` shows the results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # finds `examples` if this file is run by its path

from examples.etcd import EtcdError
from examples.race import Plan, Result, measure
from grpc_backoff import OptionError

__all__ = ["POLICIES", "main"]

POLICIES = {
    "linear, 3 retries": "retry: 3, delay: 10ms, backoff: linear, codes: ABORTED",
    "contention": "contention",
}
"""The policies compared by default: a linear policy without jitter, and the preset that is meant for contention."""

_WIDE = 120


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise click.BadParameter(f"{text!r}: expected whole numbers of at least 1, such as 2,5,10,20")
    return numbers


@click.command()
@click.option("--clients", default="2,5,10,20", show_default=True, callback=_numbers, help="How many at a time.")
@click.option("--commits", default=20, show_default=True, type=click.IntRange(1), help="Commits per client.")
@click.option("--work", default=5.0, show_default=True, type=click.FloatRange(0), help="Milliseconds in each commit.")
@click.option("--steady", is_flag=True, help="Clients commit continuously instead of all at once.")
@click.option("--against", multiple=True, metavar="POLICY", help="Another policy: a preset's name, or a policy string.")
@click.option("--seed", type=int, help="The seed of the jitter; times differ anyway.")
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the results to this file."
)
def main(file: Path | None, work: float, against: Sequence[str], **measured: Any) -> None:
    """Have many clients commit to one key in etcd, with linear retries and with the preset `contention`."""
    policies = POLICIES | {policy: policy for policy in against}
    plan = Plan(work=work / 1000, policies=policies, **measured)
    console = Console(width=None if sys.stdout.isatty() else _WIDE, markup=False)
    try:
        with console.status("etcd") as status:
            results = asyncio.run(_measure(plan, status.update))
    except (EtcdError, OptionError) as error:
        raise click.ClickException(str(error)) from error
    except asyncio.CancelledError:
        raise click.Abort from None
    console.print(_table(plan, results))
    if file is not None:
        file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    _check(results)


async def _measure(plan: Plan, begins: Callable[[str], object]) -> list[Result]:
    """Measure, and stop etcd even if a signal ends the run."""
    measuring = asyncio.ensure_future(measure(plan, begins))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, measuring.cancel)
    return await measuring


def _table(plan: Plan, results: Sequence[Result]) -> Table:
    pace = "continuously" if plan.steady else "all at once"
    title = f"{plan.commits} commits of each client, {pace}, {plan.work * 1000:g} ms of work in each"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("clients", "retries", "done", "attempts per commit", "median", "largest"):
        table.add_column(column, justify="left" if column == "retries" else "right", overflow="fold")
    for result in results:
        table.add_row(
            str(result.clients),
            result.policy,
            f"{result.done / result.commits:.1%}",
            f"{result.attempts / result.commits:.2f}",
            f"{result.median * 1000:.0f} ms",
            f"{result.largest * 1000:.0f} ms",
        )
    return table


def _check(results: Sequence[Result]) -> None:
    """Raise an error unless the counters in etcd match the commits that were reported to the clients."""
    done, stored = sum(result.done for result in results), sum(result.counter for result in results)
    unknown = sum(result.unknown for result in results)
    found = f"{done} commits reported as done, {stored} in etcd, {unknown} attempts of unknown outcome"
    if not all(result.adds_up for result in results):
        raise click.ClickException(f"the commits do not add up: {found}")
    click.echo(found)


if __name__ == "__main__":
    logging.getLogger("grpc_backoff").setLevel(logging.ERROR)  # this program counts failed commits itself
    main()
