"""The demo's report: the figures of both runs compared, and the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .script import INITIAL_BACKOFF, OUTAGES, RECOVERIES, Run, Scene, SceneRecord
from .traffic import CallRecord

__all__ = ["Check", "check", "print_report"]

_SLACK = 2
"""How many more connections than expected the check for floods allows: one at each end of the scene."""


@dataclass(frozen=True, slots=True)
class Check:
    """A claim about a run, whether it holds, and the figures that show it."""

    claim: str
    holds: bool
    figures: str


def check(run: Run) -> list[Check]:
    """Return all checks of a run."""
    return [
        Check("no call was lost", lost(run) == 0, f"{run.made} made, {len(run.records)} ended"),
        Check("no order was executed twice", run.twice == 0, f"{run.twice} orders"),
        _no_flood(run),
        _patience_is_rewarded(run),
        *(_recovered(record) for record in run.scenes if record.scene in RECOVERIES),
        _restart_unnoticed(run),
    ]


def lost(run: Run) -> int:
    """Return how many calls have neither an answer nor an error."""
    return run.made - len(run.records)


def _no_flood(run: Run) -> Check:
    record = _scene(run, Scene.HANGING_UP)
    allowed = record.seconds / INITIAL_BACKOFF + _SLACK
    return Check(
        "no flood of a peer that hangs up",
        record.connections <= allowed,
        f"{record.connections} in {record.seconds:.1f} s, at most {allowed:.0f} allowed",
    )


def _patience_is_rewarded(run: Run) -> Check:
    """Check that wait-for-ready calls made during an outage were answered.

    A call that is already on a connection can fail when the connection breaks, as on every gRPC channel. The calls
    checked here had no connection.
    """
    waited = [record for record in run.records if record.worker.wait_for_ready and _met_outage(record, run)]
    wait_for_ready = [record for record in waited if not record.worker.hasty]
    late = [record for record in wait_for_ready if record.code is grpc.StatusCode.DEADLINE_EXCEEDED]
    killed = _scene(run, Scene.KILLED)
    waited_out = [record for record in wait_for_ready if record.overlaps(killed.began, killed.ended)]
    unanswered = [record for record in waited_out if record.ended > killed.ended and record.code]
    answered = sum(record.code is None for record in wait_for_ready)
    return Check(
        "wait_for_ready calls outlasted the outages",
        answered > 0 and not late and not unanswered,
        f"{answered} of {len(wait_for_ready)}; {len(late)} late",
    )


def _met_outage(record: CallRecord, run: Run) -> bool:
    return any(scene.began < record.began < scene.ended for scene in run.scenes if scene.scene in OUTAGES)


def _recovered(record: SceneRecord) -> Check:
    found = "no answer" if record.recovered_in is None else f"after {record.recovered_in:.2f} s"
    return Check(f"calls were answered again when {record.scene.value}", record.recovered_in is not None, found)


def _restart_unnoticed(run: Run) -> Check:
    scene = _scene(run, Scene.RESTART)
    during = [record for record in run.records if record.overlaps(scene.began, scene.ended)]
    failed = sum(record.code is not None for record in during)
    return Check(
        "no call failed during the rolling restart",
        failed == 0 and len(during) > 0 and scene.connections > 0,
        f"{failed} of {len(during)}",
    )


def _scene(run: Run, scene: Scene) -> SceneRecord:
    return next(record for record in run.scenes if record.scene is scene)


def print_report(console: Console, names: tuple[str, str], ours: Run, plain: Run, checks: Sequence[Check]) -> None:
    """Print the figures of both runs under these channel names, and the checks of our run."""
    console.print()
    console.print(_figures(names, ours, plain))
    console.print()
    for each in checks:
        word = Text("ok    ", style="bold green") if each.holds else Text("FAILED", style="bold red")
        console.print(Text.assemble(word, f"  {each.claim} ", (f"({each.figures})", "dim")), soft_wrap=True)


class _Row(NamedTuple):
    """A figure of both runs; None stands for never. `best` picks the better of two, or is None where neither is."""

    name: str
    ours: float | None
    plain: float | None
    form: str = "{:.0f}"
    best: Callable[[float, float], float] | None = min

    def cells(self) -> tuple[Text, Text]:
        """Return both figures, the better one in green."""
        return self._cell(self.ours, self.plain), self._cell(self.plain, self.ours)

    def _cell(self, figure: float | None, other: float | None) -> Text:
        if figure is None:
            return Text("never")
        better = figure != other and self.best and (other is None or self.best(figure, other) == figure)
        return Text(self.form.format(figure), style="bold green" if better else "")


def _figures(names: tuple[str, str], ours: Run, plain: Run) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("the same script with (the better in green)")
    table.add_column(names[0], justify="right")
    table.add_column(names[1], justify="right")
    for row in _rows(ours, plain):
        table.add_row(row.name, *row.cells())
    return table


def _rows(ours: Run, plain: Run) -> list[_Row]:
    codes = _codes(ours), _codes(plain)
    return [
        _Row("calls made", ours.made, plain.made, best=None),
        _Row("  answered", _answered(ours), _answered(plain), best=max),
        *(
            _Row(f"  failed, {code.name}", codes[0][code], codes[1][code])
            for code in sorted(codes[0] | codes[1], key=lambda code: code.name)
        ),
        _Row("  lost", lost(ours), lost(plain)),
        _Row("orders executed twice", ours.twice, plain.twice),
        _Row("connections made", ours.connections, plain.connections),
        _Row("  per second, to a peer that hangs up", _rate(ours), _rate(plain), "{:.1f}"),
        *(
            _Row(
                f"first answer when {scene.value}",
                _scene(ours, scene).recovered_in,
                _scene(plain, scene).recovered_in,
                "{:.2f} s",
            )
            for scene in Scene
            if scene in RECOVERIES
        ),
    ]


def _answered(run: Run) -> int:
    return sum(record.code is None for record in run.records)


def _codes(run: Run) -> Counter[grpc.StatusCode]:
    return Counter(record.code for record in run.records if record.code is not None)


def _rate(run: Run) -> float:
    record = _scene(run, Scene.HANGING_UP)
    return record.connections / record.seconds
