"""Compares this project's verdict on a client with that of gRPC's own program. The two must agree (IO-1)."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from grpc_judge.official.verdict import OfficialVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The verdicts of both sides on one client.

    Attributes:
        title: the names of the client and the server.
        ours: this project's verdict; None if the test did not finish.
        theirs: whether the client passed according to the other side; None if that side gave no verdict.
        why: the last output of the other side.
    """

    title: str
    ours: OfficialVerdict | None
    theirs: bool | None
    why: str = ""

    @property
    def agreed(self) -> bool:
        """Whether both sides gave the same verdict."""
        return self.ours is not None and self.ours.passed is self.theirs

    @property
    def passed(self) -> bool:
        """Whether the client passed according to both sides."""
        return self.agreed and self.theirs is True


_WORDS = {True: "passed", False: "failed", None: "nothing"}


def show(verdict: OfficialVerdict | None, console: Console) -> None:
    """Print every gap with its allowed range, then any faults, and then the verdict."""
    if verdict is None:
        console.print("no verdict here: the test did not finish")
        return
    if verdict.gaps:
        table = Table("gap", "seconds", "allowed", "")
        for number, gap in enumerate(verdict.gaps, 1):
            allowed = f"{gap.allowed.low:.3f} to {gap.allowed.high:.3f}"
            table.add_row(str(number), f"{gap.seen:.3f}", allowed, "missed" if gap.missed_by else "ok")
        console.print(table)
    for fault in verdict.faults:
        console.print(str(fault), highlight=False)
    word = _WORDS[verdict.passed]
    console.print(f"{word}: {verdict.attempts.seen:.0f} attempts in {verdict.seconds:.1f} s", highlight=False)


def show_agreement(agreement: Agreement, console: Console) -> None:
    """Print both verdicts, and the other side's last output if the client did not pass there."""
    console.rule(agreement.title, align="left")
    show(agreement.ours, console)
    why = "" if agreement.theirs or not agreement.why else f": {agreement.why}"
    console.print(f"the other side says: {_WORDS[agreement.theirs]}{why}", highlight=False, markup=False)
    console.print("they agree" if agreement.agreed else "they do not agree")
