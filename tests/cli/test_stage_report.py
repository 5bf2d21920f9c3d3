"""How the stages of a probe are shown: as lines, as JSON and on a terminal. Text from servers is escaped."""

from __future__ import annotations

import datetime as dt
import io
import json
import socket

import pytest
from rich.console import Console

from grpc_backoff.cli.live import LiveView
from grpc_backoff.cli.stage_report import StageReport
from grpc_backoff.cli.view import JsonView, LineView
from grpc_backoff.config.target import Address
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.stages import Certificate, Security
from tests.cli.running import HOSTILE, check_harmless

ONE, TWO = Address(socket.AF_INET, ("127.0.0.1", 1)), Address(socket.AF_INET6, ("::1", 2, 0, 0))
CERTIFICATE = Certificate(
    subject=f"CN={HOSTILE}",
    issuer="O=us",
    names=("localhost", "127.0.0.1"),
    not_before=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    not_after=dt.datetime(2999, 1, 1, tzinfo=dt.UTC),
)
EMPTY = Certificate(subject="", issuer="", names=(), not_before=None, not_after=None)
STAGES = [
    ("resolved", 0.5, [ONE, TWO]),
    ("reached", 0.001, ONE, {TWO: HOSTILE}),
    ("passed_over", 0.002, ONE, Failure(Stage.TLS, HOSTILE)),
    ("secured", 0.25, Security(version="TLSv1.3", cipher="X", alpn="h2", certificate=CERTIFICATE)),
    ("settled", 1.5, {"MAX_CONCURRENT_STREAMS": 100, "0xabcd": 7}),
]


def show_all(view):
    report = StageReport(view)
    report.remark(f"remark {HOSTILE}")
    for name, *found in STAGES:
        getattr(report, name)(*found)
    report.failed(Failure(Stage.SETTINGS, HOSTILE), 0.001)
    report.lost(Loss(HOSTILE), 0.02)
    report.explain(f"meaning {HOSTILE}", f"advice {HOSTILE}")
    report.ended(2.0)
    view.close()


def test_lines(capsys):
    """CH-11: each stage prints its time and its findings, and every line is printable."""
    show_all(LineView())
    lines = capsys.readouterr().out.split("\n")
    assert all(line.isprintable() for line in lines)
    assert "resolve      500 ms 127.0.0.1:1, [::1]:2" in lines
    assert "tcp            1 ms connected to 127.0.0.1:1" in lines
    assert any(line.startswith("tls            2 ms FAILED: ") and "next address" in line for line in lines)
    assert "tls          250 ms TLSv1.3, ALPN h2, X" in lines
    assert any(line.endswith("for: localhost, 127.0.0.1") for line in lines)
    assert any("until: 2999-01-01 (" in line and "days left" in line for line in lines)
    assert "settings     1.50 s MAX_CONCURRENT_STREAMS 100, 0xabcd 7" in lines
    assert any(line.startswith("established   20 ms LOST: ") for line in lines)
    assert lines[-2] == "failed at stage settings after 2.00 s"


@pytest.mark.parametrize(
    ("name", "found", "words"),
    [
        ("settled", {}, "all defaults"),
        ("secured", Security(version="a", cipher="b", alpn="h2", certificate=None), "a, ALPN h2, b"),
        ("secured", Security(version="a", cipher="b", alpn="h2", certificate=EMPTY), "until: ?"),
    ],
)
def test_what_is_not_there(capsys, name, found, words):
    """CH-11: empty SETTINGS and missing or empty certificates can be shown."""
    for view in (LineView(), JsonView()):
        getattr(StageReport(view), name)(0, found)
    assert words in capsys.readouterr().out


def test_json(capsys):
    """CH-11: JSON output has one object per line, in printable ASCII, and keeps the exact text."""
    show_all(JsonView())
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isascii() and line.isprintable() for line in lines)
    objects = [json.loads(line) for line in lines]
    kinds = "remark", "stage", "stage", "passed_over", "stage", "stage", "failed", "lost", "diagnosis", "summary"
    assert tuple(each["event"] for each in objects) == kinds
    assert [each["stage"] for each in objects[1:7]] == ["resolve", "tcp", "tls", "tls", "settings", "settings"]
    assert objects[1]["addresses"] == ["127.0.0.1:1", "[::1]:2"]
    assert objects[2]["failed"] == {"[::1]:2": HOSTILE}
    assert objects[4]["certificate"]["not_after"] == "2999-01-01T00:00:00+00:00"
    assert objects[5]["settings"] == {"MAX_CONCURRENT_STREAMS": 100, "0xabcd": 7}
    assert objects[6]["error"] == HOSTILE
    assert objects[-1] == {"event": "summary", "ready": False, "seconds": 2.0, "stage": "settings", "error": HOSTILE}


def test_terminal():
    """CH-11: on a terminal, the spinner is removed at the end, and text from a server cannot control it."""
    stream = io.StringIO()
    view = LiveView(Console(file=stream, force_terminal=True, width=200, highlight=False))
    show_all(view)
    out = stream.getvalue()
    check_harmless(out)
    assert "failed at stage settings after 2.00 s" in out
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")
