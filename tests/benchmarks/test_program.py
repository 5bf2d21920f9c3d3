"""The benchmarks run to completion and produce every row. The tests do not check any speed.

They run in real time, about 20 seconds for all of them, and do not depend on the speed of the machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import re
from collections import Counter
from datetime import UTC, datetime
from multiprocessing import forkserver
from xml.etree import ElementTree as ET

import psutil
import pytest
from click.testing import CliRunner

from benchmarks import apart, page
from benchmarks.benchmark import CONTROL, OURS, PLAIN, THREADED, THREADED_PLAIN, Effort, Interval, Row
from benchmarks.cases import (
    attempt,
    calls,
    churn,
    delays,
    deliveries,
    fail_fast,
    fleet,
    full,
    hang_up,
    hedged,
    importing,
    lateness,
    proxies,
    recovery,
    retry,
    sharing,
    start,
    streams,
    waiting,
)
from benchmarks.cells import cells
from benchmarks.command import main
from benchmarks.suite import BENCHMARKS, Result, Run
from benchmarks.view import View
from tests.ledger.server import binaries

QUEUES = (deliveries.QUEUE,) if deliveries.has_queue() else ()
"""The queues that the ledger is compared with, as far as they are installed."""

EXPECTED = {
    "calls": (8, {calls.TIME: calls.SUBJECTS}),
    "waiting": (1, dict.fromkeys((waiting.CPU, waiting.TIME), (*waiting.SUBJECTS, *waiting.THREADED_SUBJECTS))),
    "fail-fast": (1, {fail_fast.TIME: fail_fast.SUBJECTS}),
    "hang-up": (1, {hang_up.CONNECTIONS: hang_up.SUBJECTS, hang_up.REDIALS: (OURS, THREADED)}),
    "proxies": (
        1,
        dict.fromkeys(
            (proxies.RATE, proxies.LOST, proxies.MADE, proxies.FLOOD), (OURS, PLAIN, THREADED, THREADED_PLAIN)
        ),
    ),
    "attempt": (1, {attempt.CPU: attempt.SUBJECTS}),
    "fleet": (1, dict.fromkeys(fleet.MEASURES, fleet.SUBJECTS)),
    "lateness": (
        1,
        {
            lateness.LATENESS: (OURS, lateness.TIMERS),
            lateness.DEADLINE: lateness.DEADLINE_SUBJECTS,
            lateness.BEYOND: (THREADED,),
        },
    ),
    "recovery": (
        1,
        {
            recovery.TIME: [
                subject
                for subject in (*recovery.SUBJECTS, *recovery.THREADED_SUBJECTS)
                if not subject.endswith(", reset")
            ],
            recovery.TIME_TOLD: [recovery.TOLD, recovery.THREADED_TOLD],
        },
    ),
    "retry": (
        1,
        {
            retry.TIME: retry.SUBJECTS,
            retry.TIME_FAILING: retry.RETRIERS,
            retry.CPU_FAILING: retry.RETRIERS,
            retry.TIME_TOLD: retry.RETRIERS,
        },
    ),
    "delays": (1, {delays.ONE: delays.LIBRARIES, delays.OF_MANY: (delays.SIMULATOR, delays.CONTROL, *delays.PEERS)}),
    "sharing": (
        1,
        {
            **dict.fromkeys(
                (
                    sharing.CONNECTIONS,
                    sharing.OVERLAPPING_SHORT,
                    sharing.OVERLAPPING,
                    sharing.CLOSED_FIRST,
                    sharing.HUNG_UP,
                ),
                sharing.SUBJECTS,
            ),
            sharing.REDIALS: [OURS],
            sharing.SPEED: (*sharing.SPEEDS, *sharing.THREADED_SUBJECTS),
            sharing.THROUGHPUT: sharing.LOADED,
            sharing.SHARED_THROUGHPUT: [sharing.OWN, OURS],
            sharing.LEFT: [OURS],
        },
    ),
    "hedged": (1, dict.fromkeys((hedged.CPU, hedged.TIME), hedged.SUBJECTS)),
    "streams": (1, dict.fromkeys((streams.FAILED, streams.TIME), streams.SUBJECTS)),
    "full": (1, dict.fromkeys((full.REFUSED, full.TIME, full.EACH), (*full.SUBJECTS, *full.THREADED_SUBJECTS))),
    "import": (1, {importing.TIME: (PLAIN, importing.OVER)}),
    "start": (1, dict.fromkeys((start.CPU, start.MEMORY), (*start.SUBJECTS, *start.THREADED_SUBJECTS))),
    "churn": (1, {churn.CPU: (*churn.SUBJECTS, *churn.THREADED_SUBJECTS)}),
    "deliveries": (
        1,
        {
            **dict.fromkeys((deliveries.CPU, deliveries.WORKER, deliveries.RATE), (*deliveries.SUBJECTS, *QUEUES)),
            deliveries.IN_ORDER: (deliveries.OURS, deliveries.ORDERED),
            deliveries.BACKLOG: (deliveries.BARE, deliveries.OURS),
            **dict.fromkeys((deliveries.WAKE, deliveries.IDLE_CPU), (deliveries.BARE, deliveries.OURS, *QUEUES)),
            deliveries.LATER: (deliveries.FIRST, deliveries.LAST),
        },
    ),
}
"""For each benchmark, the number of cases, and the subjects of each measure."""

ALSO = {
    "calls": (2, {calls.TIME: calls.THREADED_SUBJECTS}),
    "hedged": (2, dict.fromkeys((hedged.CPU, hedged.TIME), hedged.THREADED_SUBJECTS)),
}
"""Further measures, whose subjects appear in a different number of cases."""


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Fork the processes from one that has imported the benchmarks; importing them in each takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart, "_CONTEXT", multiprocessing.get_context("forkserver"))
        apart._CONTEXT.set_forkserver_preload(["benchmarks.suite"])
        forkserver.ensure_running()  # before a test compares its processes with those that it leaves
        yield


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_row_is_there(name):
    """CH-5: a benchmark runs to completion and returns one row per case, measure and subject."""
    if name == "deliveries" and binaries() is None:
        pytest.skip("needs PostgreSQL")
    benchmark, before = BENCHMARKS[name], set(psutil.Process().children(recursive=True))
    rows = list(benchmark.run(Effort.TINY))

    assert Counter((row.measure, row.subject) for row in rows) == {
        (measure, subject): cases
        for cases, measured in (EXPECTED[name], ALSO.get(name, (0, {})))
        for measure, subjects in measured.items()
        for subject in subjects
    }
    for row in rows:
        assert row.samples
        assert all(map(math.isfinite, row.samples))
        assert row.ratio is None or 0 < row.ratio.low <= row.ratio.value <= row.ratio.high
    for goal in benchmark.goals:
        if goal.measure == deliveries.WAKE and not QUEUES:
            continue
        assert any(goal.concerns(row) for row in rows)
    assert _running(set(psutil.Process().children(recursive=True)) - before) == []


def _running(children):
    """Return the command lines of the children still running, except multiprocessing's own resource tracker."""
    found = []
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, and may be a zombie
            found.append(" ".join(child.cmdline()))
    return [line for line in found if "resource_tracker" not in line]


@pytest.mark.parametrize(
    "name",
    ["calls", "waiting", "fail-fast", "attempt", "fleet", "recovery", "retry", "delays", "start", "churn"],
)
def test_ratios_have_a_control(name):
    """CH-5: a benchmark that reports ratios measures one of its subjects twice, as a control."""
    _, measured = EXPECTED[name]
    assert all(
        any(subject.endswith(", again") for subject in subjects)
        for measure, subjects in measured.items()
        if measure not in (recovery.TIME_TOLD, delays.ONE)  # only this library; differences far above noise
    )


def test_the_command(tmp_path):
    """CH-5: the command prints a table, writes all figures and plots, and inserts the table into a page."""
    written = tmp_path / "page.md"
    written.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\nafter\n")
    arguments = ["fail-fast", "delays", "--tiny", "--json", tmp_path / "figures.json", "--plots", tmp_path / "plots"]
    done = CliRunner().invoke(main, [*map(str, arguments), "--page", str(written)])

    assert done.exit_code == 0, done.output
    assert f"{OURS} " in done.output
    assert f"{CONTROL} " in done.output
    assert re.search(r"\d of 5 rows with a goal meet it", done.output)
    _check_figures(json.loads((tmp_path / "figures.json").read_text()))
    pictures = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert pictures == ["delays-cpu-of-a-delay.svg", "delays-time-of-a-delay.svg", "fail-fast.svg"]
    _check_picture((tmp_path / "plots" / "fail-fast.svg").read_text())
    _check_page(written.read_text())


def _check_figures(figures):
    assert figures["effort"] == "tiny"
    assert {"grpc-backoff", "grpcio", "grpclib", "Python"} <= set(figures["versions"])
    assert "cores" in figures["machine"]
    assert [benchmark["name"] for benchmark in figures["benchmarks"]] == ["fail-fast", "delays"]
    plain, ours, _ = figures["benchmarks"][0]["rows"]
    assert plain["ratio"] is None
    assert len(ours["samples"]) == fail_fast.SIZES[Effort.TINY].rounds
    assert ours["goal"]["most"] == 1.0
    assert ours["goal"]["least"] is None


def _check_picture(drawn):
    texts = "".join(ET.fromstring(drawn).itertext())
    for text in (PLAIN, OURS, CONTROL, "goal", "time of a call, µs", f"times {PLAIN}", "95 %"):
        assert text in texts


def _check_page(text):
    assert text.startswith("# Before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "`python -m benchmarks fail-fast delays --tiny`" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") == tables[0].count("|") for line in tables)
    assert sum(OURS in line for line in tables) == 1


def test_a_page_without_a_place(tmp_path):
    """CH-5: the command rejects a page without the marker for the table and leaves the file unchanged."""
    other = tmp_path / "other.md"
    other.write_text("nothing\n")
    done = CliRunner().invoke(main, ["fail-fast", "--tiny", "--page", str(other)])
    assert done.exit_code == 2
    assert page.BEGIN in done.output
    assert other.read_text() == "nothing\n"


@pytest.mark.parametrize("width", ["40", "400"])
def test_whole_figures(monkeypatch, capsys, width):
    """CH-5: every cell is printed in full, whatever the width of the terminal, or of what stands for it in a pipe."""
    monkeypatch.setenv("COLUMNS", width)
    benchmark = BENCHMARKS["fail-fast"]
    case, samples = "a case with a name of its own" * 8, (1234567.0, 7654321.0)
    row = Row(case=case, measure=fail_fast.TIME, subject=OURS, samples=samples, ratio=Interval(1.25, 1.125, 1.375))
    result = Result(benchmark=benchmark, rows=(row,), seconds=1.0)

    View().show(Run(began=datetime.now(UTC), effort=Effort.TINY, results=(result,)))

    printed = capsys.readouterr().out
    assert "…" not in printed
    assert all(text in printed for text in cells(row, benchmark).texts)


def test_unknown_name():
    """CH-5: the command rejects an unknown benchmark and names it."""
    done = CliRunner().invoke(main, ["nothing", "--tiny"])
    assert done.exit_code == 2
    assert "nothing" in done.output


@pytest.mark.parametrize("name", delays.LIBRARIES)
def test_same_schedule(name, monkeypatch):
    """BP: every library draws one number per delay; tenacity, backoff and google-api-core use the same interval."""
    asked = []
    monkeypatch.setattr("random.uniform", lambda low, high: asked.append((low, high)) or high)
    monkeypatch.setattr("random.Random.random", lambda _: asked.append((0.0, 1.0)) or 0.5)

    delays.LIBRARIES[name](8)

    assert len(asked) == 8
    if name in ("tenacity", "backoff", "google-api-core"):
        assert asked == [(0, min(2.0**n, 60.0)) for n in range(8)]
