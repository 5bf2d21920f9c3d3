"""Two verdicts on one client, this project's and another's, side by side: they have to be the same (IO-1)."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from interop.official.report import show
from interop.official.verdict import OfficialVerdict

__all__ = ["Agreement", "show_agreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What both sides say of one client.

    Attributes:
        title: which client, before which server.
        ours: this project's verdict; None if the test did not come to its end.
        theirs: whether the other side says that it passed; None if it said nothing.
        why: what the other side wrote last.
    """

    title: str
    ours: OfficialVerdict | None
    theirs: bool | None
    why: str = ""

    @property
    def agreed(self) -> bool:
        """Whether both said something, and the same."""
        return self.ours is not None and self.ours.passed is self.theirs

    @property
    def passed(self) -> bool:
        """Whether both say that it passed."""
        return self.agreed and self.theirs is True


_WORDS = {True: "passed", False: "failed", None: "nothing"}


def show_agreement(agreement: Agreement, console: Console) -> None:
    """Print both verdicts, and the other side's last words unless it is content."""
    console.rule(agreement.title, align="left")
    if agreement.ours is None:
        console.print("no verdict here: the test did not come to its end")
    else:
        show(agreement.ours, console)
    why = "" if agreement.theirs or not agreement.why else f": {agreement.why}"
    console.print(f"the other side says: {_WORDS[agreement.theirs]}{why}", highlight=False, markup=False)
    console.print("they agree" if agreement.agreed else "they do not agree")
