"""The history of a channel's connections, one record for each attempt, and how a command reports it.

A channel's events number the attempts of one series and start again at 1 after each success. The log numbers all
attempts consecutively, whichever of the channel's slots makes them, and counts times from its own start.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grpc_backoff.cli.view import Activity, Cells, Styled, View, duration, failure_fields, plural, reason
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ConnectionEvent, ConnectionStatus, Failure, SlotStatus, State
from grpc_backoff.decide.connections.slot_events import SlotClosed

_COLUMNS = {"#": -3, "start": -8, "gap": -7, "next in": -7}
_SLOT_COLUMNS = ("endpoint", "role", "state", "calls", "since", "last error")


class Outcome(enum.Enum):
    """An attempt's outcome."""

    STARTED = "started"
    """The attempt is in flight."""
    FAILED = "failed"
    """The attempt ended without SETTINGS."""
    CONNECTED = "connected"
    """SETTINGS arrived, and the connection is up."""
    DISCONNECTED = "disconnected"
    """SETTINGS arrived, and the connection has ended since."""
    CLOSED = "closed"
    """The channel has closed the slot: its connection, or else the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One attempt, as far as it is known. Times are in seconds.

    Attributes:
        number: its number among all attempts, from 1.
        attempt: its number in its series, from 1, as in gRPC's backoff.
        start: when it started, counted from the start of the log.
        gap: the time from the start of the endpoint's previous attempt to the start of this one; None for the first.
        limit: its time limit.
        outcome: its outcome so far.
        took: how long it lasted; None while it is in flight.
        lived: how long its connection lasted; None unless the connection has ended.
        failure: why it failed, or why its connection ended.
        next_in: how long after the failure or loss the next attempt may start; None if none is planned.
        endpoint: the address that is dialled; empty for the whole target.
    """

    number: int
    attempt: int
    start: float
    gap: float | None
    limit: float
    outcome: Outcome = Outcome.STARTED
    took: float | None = None
    lived: float | None = None
    failure: Failure | None = None
    next_in: float | None = None
    endpoint: str = ""


class AttemptLog:
    """A log of one channel's attempts.

    Attributes:
        attempts: how many attempts have started.
        ended: how many attempts have failed or connected.
        connections: how many attempts have connected.
        last_error: why the last attempt failed or the last connection ended, even if there is a connection now.
        origin: when the log started, on the channel's clock.
    """

    def __init__(self, origin: float) -> None:
        """Start a log that counts seconds from `origin`, a time on the channel's clock."""
        self.origin = origin
        self.attempts = 0
        self.ended = 0
        self.connections = 0
        self.last_error: Failure | None = None
        self._latest: dict[int, LoggedAttempt] = {}  # of each slot
        self._starts: dict[str, float] = {}  # of each endpoint's latest attempt

    def note(self, event: ConnectionEvent) -> LoggedAttempt | None:
        """Record an event; return the attempt whose outcome it changes, or None if it changes none."""
        slot, latest = event.slot, self._latest.get(event.slot)
        match event:
            case events.AttemptStarted():
                self.attempts += 1
                start = event.at - self.origin
                before = self._starts.get(event.endpoint)
                self._starts[event.endpoint] = start
                self._latest[slot] = LoggedAttempt(
                    number=self.attempts,
                    attempt=event.attempt,
                    start=start,
                    gap=None if before is None else start - before,
                    limit=event.limit,
                    endpoint=event.endpoint,
                )
            case _ if latest is None:
                return None
            case events.AttemptFailed():
                self._latest[slot] = replace(
                    latest, outcome=Outcome.FAILED, took=event.took, failure=event.failure, next_in=event.retry_in
                )
                self.ended += 1
                self.last_error = event.failure
            case events.Connected():
                self._latest[slot] = replace(latest, outcome=Outcome.CONNECTED, took=event.took)
                self.ended += 1
                self.connections += 1
            case events.Disconnected():
                self._latest[slot] = replace(
                    latest,
                    outcome=Outcome.DISCONNECTED,
                    lived=event.lived,
                    failure=event.failure,
                    next_in=event.retry_in,
                )
                self.last_error = event.failure
            case SlotClosed():
                del self._latest[slot]
                over = latest.outcome in (Outcome.FAILED, Outcome.DISCONNECTED)
                return None if over else replace(latest, outcome=Outcome.CLOSED, lived=event.lived)
            case _:
                return None
        return self._latest[slot]


class ChannelReport:
    """Shows attempts as they start and end: as events, as one line for each, or on a terminal as a growing table."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._current: dict[int, LoggedAttempt] = {}  # by number, until the row in the table is printed
        self._slots: Sequence[SlotStatus] = ()  # as in the last event
        self._headed = False
        self._last_reason = ""
        self._wait = 0.0

    def heading(self, text: str) -> None:
        """Start a section; the rows of open connections are printed above it."""
        self._print_standing()
        self._last_reason = ""
        self.view.line()
        self.view.line(text if self.view.live else f"== {text}", "bold")

    def show(self, attempt: LoggedAttempt) -> None:
        """Show an attempt that has just started, or whose outcome has just changed."""
        self.view.event(attempt.outcome.value, **_fields(attempt))
        if not self.view.live:
            if attempt.outcome is not Outcome.STARTED:
                self.view.line(_line(attempt))
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
        slots = _slots(status)
        if slots != self._slots:
            self._slots = slots
            self.view.event("slots", slots=[_slot_fields(slot, origin) for slot in slots])
        if not self.view.live:
            return
        parts: list[Cells | Activity] = [*(_slot_rows(slots, origin) or map(_row, self._current.values()))]
        if status is not None:
            parts.append(self._activity(status))
        if note:
            parts.append(Activity(note, "dim"))
        self.view.now(*parts)

    def summary(self, log: AttemptLog, ended: str, seconds: float, status: ConnectionStatus | None = None) -> None:
        """Show the last slots, if there were several, and the totals; nothing follows them.

        `ended` says why the command ends, and `seconds` how long after the log's start.
        """
        self._print_standing()
        self.view.close()
        if self.view.live:
            self.view.line()
        slots = _slots(status)
        for row in _slot_rows(slots, log.origin):
            self.view.row(row)
        error = log.last_error
        totals = f"{plural(log.attempts, 'attempt')}, {plural(log.connections, 'connection')}"
        last = f"; last error: {error.stage.value}: {reason(error)}" if error else ""
        style = "bold green" if log.connections else "bold red"
        self.view.line(f"{ended} after {seconds:.1f} s: {totals}{last}", style)
        counts = {"attempts": log.attempts, "connections": log.connections}
        more = {"slots": [_slot_fields(slot, log.origin) for slot in slots]} if slots else {}
        self.view.event("summary", ended=ended, seconds=seconds, **counts, **failure_fields(error), **more)

    def _print_standing(self) -> None:
        for number, attempt in tuple(self._current.items()):
            if attempt.outcome is Outcome.CONNECTED:
                del self._current[number]
                self._print(attempt)

    def _print(self, attempt: LoggedAttempt) -> None:
        if not self._headed:
            self._headed = True
            self.view.row(Cells(tuple(_COLUMNS.values()), [[(name, "dim")] for name in (*_COLUMNS, "outcome")]))
        self.view.row(_row(attempt, self._last_reason))
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


def _fields(attempt: LoggedAttempt) -> dict[str, object]:
    names = ("number", "attempt", "start", "gap", "limit", "took", "lived", "next_in")
    where = {"endpoint": attempt.endpoint} if attempt.endpoint else {}
    return {name: getattr(attempt, name) for name in names} | where | failure_fields(attempt.failure)


def _slots(status: ConnectionStatus | None) -> Sequence[SlotStatus]:
    """Return the slots to show: none if there is only one, because the attempts say all of that."""
    return status.connections if status is not None and len(status.connections) > 1 else ()


def _slot_fields(slot: SlotStatus, origin: float) -> dict[str, object]:
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


def _line(attempt: LoggedAttempt) -> str:
    gap = "" if attempt.gap is None else f"gap {attempt.gap:.3f} s"
    upcoming = "" if attempt.next_in is None else f"; next in {attempt.next_in:.3f} s"
    outcome = _outcome(attempt)
    if (failure := attempt.failure) is not None:
        failed = attempt.outcome is Outcome.FAILED
        what = f"{outcome}, {failure.stage.value}" if failed else f"disconnected after {duration(attempt.lived)}"
        outcome = f"{what}: {reason(failure)}{upcoming}"
    where = f"{attempt.endpoint}  " if attempt.endpoint else ""
    return f"#{attempt.number:<4} {attempt.start:8.3f} s  {gap:<14} {where}{outcome}"


_STYLES = {
    Outcome.STARTED: "cyan",
    Outcome.FAILED: "red",
    Outcome.CONNECTED: "green",
    Outcome.DISCONNECTED: "yellow",
    Outcome.CLOSED: "dim",
}


def _row(attempt: LoggedAttempt, last_reason: str = "") -> Cells:
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
