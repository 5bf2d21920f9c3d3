"""The views of `connect`: lines, JSON and the live table. Text from a server cannot control the terminal."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

from rich.console import Console

from grpc_backoff.cli.attempt_log import AttemptLog, LoggedAttempt, Outcome
from grpc_backoff.cli.channel_report import ChannelReport
from grpc_backoff.cli.live import LiveView
from grpc_backoff.cli.view import JsonView, LineView
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ConnectionStatus, Failure, Role, SlotStatus, Stage, State
from grpc_backoff.decide.connections.slot_events import SlotClosed
from tests.cli.running import HOSTILE, check_harmless

STATUS = ConnectionStatus(
    state=State.TRANSIENT_FAILURE,
    attempt=1,
    in_flight=False,
    last_error=None,
    next_attempt_in=1.25,
    ready_since=None,
    made=0,
)


def failed(text, number=1, **more):
    return LoggedAttempt(
        number=number,
        attempt=number,
        start=0.5,
        gap=None,
        limit=20.0,
        outcome=Outcome.FAILED,
        took=0.002,
        failure=Failure(Stage.TLS, text),
        next_in=0.25,
        **more,
    )


def live_report(width=100):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system=None, width=width, highlight=False)
    return ChannelReport(LiveView(console)), stream


def test_lines_escape_what_a_server_says(capsys):
    """In line output, text from a server is escaped so that each line stays a single printable line."""
    ChannelReport(LineView()).show(failed(HOSTILE))
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.rstrip("\n").isprintable()
    assert r"\x1b]0;owned" in out


def test_table_escapes_what_a_server_says():
    """The table shows control characters and square brackets from a server as plain text."""
    report, stream = live_report(width=200)
    report.show(failed(HOSTILE))
    report.view.close()
    check_harmless(stream.getvalue())


def test_json_escapes_and_still_tells_the_very_text(capsys):
    """A JSON line is printable ASCII, and parsing it returns the error's exact text."""
    ChannelReport(JsonView()).show(failed(HOSTILE))
    line = capsys.readouterr().out.removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["error"] == HOSTILE
    assert json.loads(line)["took"] == 0.002


def test_table_says_a_repeated_reason_once():
    """The table prints "as before" instead of repeating the reason of the row above."""
    report, stream = live_report()
    report.show(failed("connection refused"))
    report.show(failed("connection refused", number=2))
    report.view.close()
    assert stream.getvalue().count("connection refused") == 1
    assert "as before" in stream.getvalue()


def test_table_counts_down():
    """CH-11: the status line shows the time until the next attempt."""
    report, stream = live_report()
    report.refresh(STATUS, "a note")
    report.view.close()
    assert "next attempt in 1.2 s" in stream.getvalue()
    assert "a note" in stream.getvalue()


def test_table_prints_a_standing_connection_before_the_summary():
    """A connection that is still open gets its row when the command ends."""
    report, stream = live_report()
    log = AttemptLog(0.0)
    log.note(events.AttemptStarted(target="t", at=0.0, attempt=1, limit=20.0))
    report.show(log.note(events.Connected(target="t", at=0.003, attempt=1, took=0.003, connections=1)))
    report.summary(log, "interrupted", 2.0)
    assert "READY after 3 ms" in stream.getvalue()
    assert "interrupted after 2.0 s: 1 attempt, 1 connection" in stream.getvalue()


def test_log_numbers_attempts_through_and_measures_start_to_start():
    """CB-2: attempts are numbered consecutively, and gaps are measured from start to start, even across a success."""
    log = AttemptLog(100.0)
    refused = Failure(Stage.TCP, "refused")
    lost = Failure(Stage.ESTABLISHED, "lost")
    first, second = {"target": "t", "attempt": 1}, {"target": "t", "attempt": 2}
    log.note(events.AttemptStarted(**first, at=100.5, limit=20.0))
    log.note(events.AttemptFailed(**first, at=100.6, failure=refused, took=0.1, retry_in=0.9))
    log.note(events.AttemptStarted(**second, at=101.5, limit=20.0))
    log.note(events.Connected(**second, at=101.6, took=0.1, connections=1))
    loss = {"failure": lost, "lived": 1.4, "counted_as_failure": False, "retry_in": 0.5}
    ended = log.note(events.Disconnected(**second, at=103, **loss))
    third = log.note(events.AttemptStarted(**first, at=103.5, limit=20.0))
    assert (ended.number, ended.outcome, ended.gap, ended.next_in) == (2, Outcome.DISCONNECTED, 1.0, 0.5)
    assert (third.number, third.attempt, third.start, third.gap) == (3, 1, 3.5, 2.0)
    assert (log.attempts, log.ended, log.connections, log.last_error) == (3, 2, 1, lost)


def test_log_ignores_what_is_about_no_attempt():
    """The log ignores events that do not concern an attempt, such as an early reset."""
    assert AttemptLog(0.0).note(events.BackoffReset(target="t", at=1.0, attempt=0)) is None


def started(slot, at=0.0):
    return events.AttemptStarted(target="t", at=at, attempt=1, limit=20.0, endpoint=f"{slot}:1", slot=slot)


def test_log_keeps_the_attempts_of_several_slots_apart():
    """PO-11: if two slots dial at once, each result is written to the attempt of its own slot."""
    log = AttemptLog(0.0)
    log.note(started(1))
    log.note(started(2, at=0.25))
    refused = Failure(Stage.TCP, "refused")
    first = log.note(events.AttemptFailed(target="t", at=0.5, attempt=1, failure=refused, took=0.5, retry_in=1, slot=1))
    second = log.note(events.Connected(target="t", at=0.6, attempt=1, took=0.35, connections=1, slot=2))
    again = log.note(started(1, at=1.5))
    assert (first.number, first.outcome, first.endpoint) == (1, Outcome.FAILED, "1:1")
    assert (second.number, second.outcome, second.gap) == (2, Outcome.CONNECTED, None)
    assert (again.number, again.gap) == (3, 1.5)


def closed(slot, lived=None):
    return SlotClosed(target="t", at=9.0, attempt=0, slot=slot, why="replaced", lived=lived)


def test_table_says_what_became_of_a_closed_slot():
    """PO-11: when a slot is closed, its connection or attempt gets a row; a slot with neither gets none."""
    report, stream = live_report()
    log = AttemptLog(0.0)
    report.show(log.note(started(1)))
    report.show(log.note(started(2)))
    report.show(log.note(events.Connected(target="t", at=1.0, attempt=1, took=1.0, connections=1, slot=1)))
    report.show(log.note(closed(1, lived=8.0)))
    report.show(log.note(closed(2)))
    assert log.note(closed(1)) is None
    report.summary(log, "interrupted", 9.0)
    assert stream.getvalue().count("1:1  READY after 1.00 s, closed after 8.00 s") == 1
    assert stream.getvalue().count("2:1  given up") == 1


def test_table_shows_several_slots():
    """PO-11: several slots are shown as rows, as text for people and as fields for programs; one slot is not."""
    slots = [
        SlotStatus(endpoint="a:1", role=Role.SERVING, state=State.READY, calls=3, since=11.5, last_error=None),
        SlotStatus(
            endpoint="b:22",
            role=Role.COMING,
            state=State.TRANSIENT_FAILURE,
            calls=0,
            since=10.0,
            last_error=Failure(Stage.TCP, HOSTILE),
        ),
    ]
    ready = replace(STATUS, state=State.READY, next_attempt_in=None, ready_since=11.5, made=1)
    status = replace(ready, connections=tuple(slots))
    report, stream = live_report(width=200)
    report.refresh(status, origin=10.0)
    report.refresh(replace(status, connections=(slots[0],)), origin=10.0)
    shown = stream.getvalue()
    assert shown.count("a:1") == 1
    report.summary(AttemptLog(10.0), "interrupted", 2.0, status)
    report.view.close()
    for text in (shown, stream.getvalue().removeprefix(shown)):
        assert re.search(r"a:1 +serving +READY +3 +1\.500 s", text)
        assert re.search(r"b:22 +coming +TRANSIENT_FAILURE +0 +0\.000 s +tcp: \\x1b", text)
