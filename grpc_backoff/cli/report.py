"""How a command reports the connections of a channel, on a view."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_backoff.cli.attempt_rows import (
    ATTEMPT_HEADING,
    attempt_fields,
    attempt_line,
    attempt_row,
    shown_slots,
    slot_fields,
    slot_rows,
)
from grpc_backoff.cli.attempts import AttemptLog, LoggedAttempt, Outcome
from grpc_backoff.cli.view import Activity, Cells, View, failure_fields, plural, reason
from grpc_backoff.decide.connections.events import ConnectionStatus, SlotStatus, State


class ChannelReport:
    """Shows attempts as they start and end: as events, as one line for each, or on a terminal as a growing table."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._current: dict[int, LoggedAttempt] = {}  # by number, until the row in the table is printed
        self._slots: Sequence[SlotStatus] = ()  # as in the last event
        self._headed = False
        self._last_reason = ""
        self._wait = 0.0

    def show(self, attempt: LoggedAttempt) -> None:
        """Show an attempt that has just started, or whose outcome has just changed."""
        self.view.event(attempt.outcome.value, **attempt_fields(attempt))
        if not self.view.live:
            if attempt.outcome is not Outcome.STARTED:
                self.view.line(attempt_line(attempt))
            return
        self._wait = attempt.next_in or 0.0
        if attempt.outcome in (Outcome.STARTED, Outcome.CONNECTED):
            self._current[attempt.number] = attempt
        else:
            self._current.pop(attempt.number, None)
            self._print(attempt)

    def refresh(self, status: ConnectionStatus | None, note: str = "", origin: float = 0.0) -> None:
        """Show the current attempt or connection, or the slots if there are several; the next attempt, and a note.

        Times since when slots have their roles are counted from `origin`, a time on the channel's clock.
        """
        slots = shown_slots(status)
        if slots != self._slots:
            self._slots = slots
            self.view.event("slots", slots=[slot_fields(slot, origin) for slot in slots])
        if not self.view.live:
            return
        parts: list[Cells | Activity] = [*(slot_rows(slots, origin) or map(attempt_row, self._current.values()))]
        if status is not None:
            parts.append(self._activity(status))
        if note:
            parts.append(Activity(note, "dim"))
        self.view.now(*parts)

    def summary(self, log: AttemptLog, ended: str, seconds: float, status: ConnectionStatus | None = None) -> None:
        """Show the last slots, if there were several, and the totals; nothing follows them.

        `ended` says why the command ends, and `seconds` how long after the log's start.
        """
        self.print_standing()
        self.view.close()
        if self.view.live:
            self.view.line()
        slots = shown_slots(status)
        for row in slot_rows(slots, log.origin):
            self.view.row(row)
        error = log.last_error
        totals = f"{plural(log.attempts, 'attempt')}, {plural(log.connections, 'connection')}"
        last = f"; last error: {error.stage.value}: {reason(error)}" if error else ""
        style = "bold green" if log.connections else "bold red"
        self.view.line(f"{ended} after {seconds:.1f} s: {totals}{last}", style)
        counts = {"attempts": log.attempts, "connections": log.connections}
        more = {"slots": [slot_fields(slot, log.origin) for slot in slots]} if slots else {}
        self.view.event("summary", ended=ended, seconds=seconds, **counts, **failure_fields(error), **more)

    def print_standing(self) -> None:
        """Print the rows of open connections, above what follows; the next reason is written in full."""
        for number, attempt in tuple(self._current.items()):
            if attempt.outcome is Outcome.CONNECTED:
                del self._current[number]
                self._print(attempt)
        self._last_reason = ""

    def _print(self, attempt: LoggedAttempt) -> None:
        if not self._headed:
            self._headed = True
            self.view.row(ATTEMPT_HEADING)
        self.view.row(attempt_row(attempt, self._last_reason))
        self._last_reason = reason(attempt.failure) if attempt.failure else ""

    def _activity(self, status: ConnectionStatus) -> Activity:
        left = status.next_attempt_in
        if left is not None:
            self._wait = max(self._wait, left)
            share = 1 - left / self._wait if self._wait else 1.0
            return Activity(f"next attempt in {left:.1f} s", "yellow", share=share)
        if status.state is State.READY:
            return Activity(f"● READY, {plural(status.made, 'connection')} so far", "green")
        if status.in_flight:
            return Activity(f"attempt {status.attempt}: waiting for SETTINGS", "cyan", spins=True)
        return Activity(f"○ {status.state.name}", "dim")
