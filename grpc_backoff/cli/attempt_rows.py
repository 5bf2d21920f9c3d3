"""How attempts and slots are written: as fields of an event, as a line of a log, and as a row of a table."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_backoff.cli.attempts import LoggedAttempt, Outcome
from grpc_backoff.cli.view import Cells, Styled, duration, failure_fields, reason
from grpc_backoff.decide.connections.events import ConnectionStatus, SlotStatus

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

ATTEMPT_HEADING = Cells(tuple(_COLUMNS.values()), [[(name, "dim")] for name in (*_COLUMNS, "outcome")])
"""The row above those of attempts."""


def attempt_fields(attempt: LoggedAttempt) -> dict[str, object]:
    """Return the fields of an event about an attempt."""
    names = ("number", "attempt", "start", "gap", "limit", "took", "lived", "next_in")
    where = {"endpoint": attempt.endpoint} if attempt.endpoint else {}
    return {name: getattr(attempt, name) for name in names} | where | failure_fields(attempt.failure)


def shown_slots(status: ConnectionStatus | None) -> Sequence[SlotStatus]:
    """Return the slots to show: none if there is only one, because the attempts say all of that."""
    return status.connections if status is not None and len(status.connections) > 1 else ()


def slot_fields(slot: SlotStatus, origin: float) -> dict[str, object]:
    """Return a slot as the field of an event; its time counts from `origin`, a time on the channel's clock."""
    return {
        "endpoint": slot.endpoint,
        "role": slot.role.value,
        "state": slot.state.name,
        "calls": slot.calls,
        "since": max(0.0, round(slot.since - origin, 6)),
        **failure_fields(slot.last_error),
    }


def slot_rows(slots: Sequence[SlotStatus], origin: float) -> list[Cells]:
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


def attempt_line(attempt: LoggedAttempt) -> str:
    """Return the line of a log about an attempt that has ended."""
    gap = "" if attempt.gap is None else f"gap {attempt.gap:.3f} s"
    upcoming = "" if attempt.next_in is None else f"; next in {attempt.next_in:.3f} s"
    outcome = _outcome(attempt)
    if (failure := attempt.failure) is not None:
        failed = attempt.outcome is Outcome.FAILED
        what = f"{outcome}, {failure.stage.value}" if failed else f"disconnected after {duration(attempt.lived)}"
        outcome = f"{what}: {reason(failure)}{upcoming}"
    where = f"{attempt.endpoint}  " if attempt.endpoint else ""
    return f"#{attempt.number:<4} {attempt.start:8.3f} s  {gap:<14} {where}{outcome}"


def attempt_row(attempt: LoggedAttempt, last_reason: str = "") -> Cells:
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
