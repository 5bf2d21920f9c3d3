"""How a command reports the connections of a channel on a view: as events, lines of a log, and rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_backoff.cli.attempt_log import AttemptLog, LoggedAttempt, Outcome
from grpc_backoff.cli.texts import duration, failure_fields, plural, reason
from grpc_backoff.cli.view import Activity, Cells, Styled, View
from grpc_backoff.decide.connections.events import ConnectionStatus, SlotStatus, State

_COLUMNS = {"#": -3, "start": -8, "gap": -7, "next in": -7}
"""The columns of an attempt before its outcome, with their widths."""
_SLOT_COLUMNS = ("endpoint", "role", "state", "calls", "since", "last error")
_STYLES = {
    Outcome.STARTED: "cyan",
    Outcome.FAILED: "red",
    Outcome.CONNECTED: "green",
    Outcome.DISCONNECTED: "yellow",
    Outcome.CLOSED: "dim",
}

_HEADING = Cells(tuple(_COLUMNS.values()), [[(name, "dim")] for name in (*_COLUMNS, "outcome")])


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
        self.view.event(attempt.outcome.value, **_attempt_fields(attempt))
        if not self.view.live:
            if attempt.outcome is not Outcome.STARTED:
                self.view.line(_attempt_line(attempt))
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
        slots = _shown_slots(status)
        if slots != self._slots:
            self._slots = slots
            self.view.event("slots", slots=[_slot_fields(slot, origin) for slot in slots])
        if not self.view.live:
            return
        parts: list[Cells | Activity] = [*(_slot_rows(slots, origin) or map(_attempt_row, self._current.values()))]
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
        slots = _shown_slots(status)
        for row in _slot_rows(slots, log.origin):
            self.view.row(row)
        error = log.last_error
        totals = f"{plural(log.attempts, 'attempt')}, {plural(log.connections, 'connection')}"
        last = f"; last error: {error.stage.value}: {reason(error)}" if error else ""
        style = "bold green" if log.connections else "bold red"
        lasted = f"{seconds:.1f} s" if round(seconds, 3) >= 1 else duration(seconds)
        self.view.line(f"{ended} after {lasted}: {totals}{last}", style)
        counts = {"attempts": log.attempts, "connections": log.connections}
        more = {"slots": [_slot_fields(slot, log.origin) for slot in slots]} if slots else {}
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
            self.view.row(_HEADING)
        self.view.row(_attempt_row(attempt, self._last_reason))
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


def _attempt_fields(attempt: LoggedAttempt) -> dict[str, object]:
    names = ("number", "attempt", "start", "gap", "limit", "took", "lived", "next_in")
    where = {"endpoint": attempt.endpoint} if attempt.endpoint else {}
    return {name: getattr(attempt, name) for name in names} | where | failure_fields(attempt.failure)


def _shown_slots(status: ConnectionStatus | None) -> Sequence[SlotStatus]:
    """Return the slots to show: none if there is only one, because the attempts say all of that."""
    return status.connections if status is not None and len(status.connections) > 1 else ()


def _slot_fields(slot: SlotStatus, origin: float) -> dict[str, object]:
    """Return a slot as the field of an event; its time counts from `origin`, a time on the channel's clock."""
    return {
        "endpoint": slot.endpoint,
        "role": slot.role.value,
        "state": slot.state.name,
        "calls": slot.calls,
        "since": max(0.0, round(slot.since - origin, 6)),
        **failure_fields(slot.last_error),
    }


def _slot_rows(slots: Sequence[SlotStatus], origin: float) -> list[Cells]:
    """Return a row for each slot below a heading; nothing if there are no slots."""
    if not slots:
        return []
    texts = [_SLOT_COLUMNS]
    for slot in slots:
        error = slot.last_error
        why = f"{error.stage.value}: {reason(error)}" if error else ""
        known = slot.endpoint or "whole target", slot.role.value, slot.state.name, str(slot.calls)
        texts.append((*known, f"{max(0.0, slot.since - origin):.3f} s", why))
    widths = [2 + max(map(len, column)) for column in zip(*texts, strict=True)][:-1]
    return [Cells(widths, [[(text, "" if row else "dim")] for text in cells]) for row, cells in enumerate(texts)]


def _attempt_line(attempt: LoggedAttempt) -> str:
    gap = "" if attempt.gap is None else f"gap {attempt.gap:.3f} s"
    upcoming = "" if attempt.next_in is None else f"; next in {attempt.next_in:.3f} s"
    outcome = _outcome(attempt)
    if (failure := attempt.failure) is not None:
        failed = attempt.outcome is Outcome.FAILED
        what = f"{outcome}, {failure.stage.value}" if failed else f"disconnected after {duration(attempt.lived)}"
        outcome = f"{what}: {reason(failure)}{upcoming}"
    where = f"{attempt.endpoint}  " if attempt.endpoint else ""
    return f"#{attempt.number:<4} {attempt.start:8.3f} s  {gap:<14} {where}{outcome}"


def _attempt_row(attempt: LoggedAttempt, last_reason: str = "") -> Cells:
    """Return an attempt's row in the table; `last_reason` is that of the row above, which is not repeated."""
    outcome: list[Styled] = [(f"{attempt.endpoint}  ", "")] if attempt.endpoint else []
    outcome += [(_outcome(attempt), _STYLES[attempt.outcome])]
    if attempt.outcome is Outcome.FAILED and attempt.failure:
        why = reason(attempt.failure)
        outcome += [(f"  {attempt.failure.stage.value}", "bold")]
        outcome += [("  as before" if why == last_reason else f"  {why}", "dim")]
    cells = [
        [(str(attempt.number), "dim")],
        [(f"{attempt.start:.3f} s", "")],
        [("" if attempt.gap is None else f"{attempt.gap:.2f} s", "")],
        [("" if attempt.next_in is None else f"{attempt.next_in:.2f} s", "")],
        outcome,
    ]
    return Cells(tuple(_COLUMNS.values()), cells)


def _outcome(attempt: LoggedAttempt) -> str:
    match attempt.outcome:
        case Outcome.STARTED:
            return f"at most {duration(attempt.limit)}"
        case Outcome.FAILED:
            return f"failed after {duration(attempt.took)}"
        case Outcome.CONNECTED:
            return f"READY after {duration(attempt.took)}"
        case Outcome.DISCONNECTED:
            return f"READY after {duration(attempt.took)}, lost after {duration(attempt.lived)}"
        case Outcome.CLOSED:
            made = f"READY after {duration(attempt.took)}, closed"
            return "given up" if attempt.took is None else f"{made} after {duration(attempt.lived)}"
