"""The command line of the benchmarks: which to run, how long to measure, and where to write the figures."""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks import page, pictures
from benchmarks.benchmark import Effort
from benchmarks.record import to_json
from benchmarks.suite import BENCHMARKS, run
from benchmarks.view import View

__all__ = ["main"]

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_PAGE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _with_place(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    """Reject a page that has no place for the tables, before anything is measured."""
    if file is not None and not page.has_place(file):
        raise click.BadParameter(f"{file} has no lines {page.BEGIN!r} and {page.END!r}, between which the table goes")
    return file


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--quick", "effort", flag_value=Effort.QUICK.value, help="Every row, from too few samples to rely on.")
@click.option("--tiny", "effort", flag_value=Effort.TINY.value, help="Even less: for the tests of this program.")
@click.option("--json", "file", type=_FILE, help="Write every sample to this file.")
@click.option("--plots", type=_FOLDER, help="Draw a picture of each measure into this directory.")
@click.option("--page", "into", type=_PAGE, callback=_with_place, help="Insert the tables into this page.")
def main(names: tuple[str, ...], effort: str | None, file: Path | None, plots: Path | None, into: Path | None) -> None:
    """Measure this library against grpc.aio and others, in one run.

    By default, all benchmarks run, which takes a quarter of an hour on an otherwise idle machine. The exit status does
    not depend on the figures: it is 0 unless something breaks.
    """
    view = View()
    done = run([BENCHMARKS[name] for name in names or BENCHMARKS], Effort(effort or Effort.FULL.value), view.begin)
    view.show(done)
    if file is not None:
        file.write_text(json.dumps(to_json(done), indent=1) + "\n", "utf-8")
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for result in done.results:
            pictures.draw(result, plots)
    if into is not None:
        page.put_into(into, done)
