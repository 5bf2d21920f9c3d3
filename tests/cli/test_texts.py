"""How text, failures and times are written."""

from __future__ import annotations

import datetime as dt
import json
import math

import pytest

from grpc_backoff.cli.texts import duration, json_text, printable, reason
from grpc_backoff.decide.connections.events import Failure, Stage
from tests.cli.running import HOSTILE


def test_printable_leaves_nothing_that_moves_a_terminal():
    """`printable` escapes control, formatting and line-breaking characters, and keeps letters of all scripts."""
    text = printable(HOSTILE + "größer 日本")
    assert text.isprintable()
    assert text == r"\x1b]0;owned\x07\x1b[2J\x0d\x0afake line\x9b31m\u202eright to left\x7f\u2028[bold]größer 日本"


def test_reason_drops_what_every_failure_begins_with():
    """`reason` removes the preamble with which the core begins a failure's message."""
    said = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Connection refused"
    assert reason(Failure(Stage.TCP, said)) == "ipv4:127.0.0.1:9: Connection refused"
    assert reason(Failure(Stage.TCP, "something else: UNKNOWN: x")) == "something else: UNKNOWN: x"


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "?"), (0, "0 ms"), (0.0001, "<1 ms"), (0.2, "200 ms"), (1.5, "1.50 s")]
)
def test_duration(seconds, words):
    """Times below a second are shown in milliseconds, and others in seconds."""
    assert duration(seconds) == words


def test_json():
    """JSON is printable ASCII that parses to the same text; what it cannot represent becomes a string."""
    text = json_text([HOSTILE, math.inf, dt.datetime(2999, 1, 1, tzinfo=dt.UTC)])
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == [HOSTILE, "inf", "2999-01-01T00:00:00+00:00"]
