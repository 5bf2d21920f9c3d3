"""What a run prints: its progress, the table, and an explanation of the failures."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from grpc_judge.clients.peer import find_peers
from grpc_judge.conformance import Scenario
from grpc_judge.matrix.results import Demands
from grpc_judge.matrix.scenarios import STAGINGS, Pace
from grpc_judge.matrix.schedule import Wave
from grpc_judge.matrix.trial import Trial
from grpc_judge.matrix.view import MatrixView
from tests.interop_suite.matrix.results import MISSING, flooding_peer, results, right_peer


def shown(show, *, terminal=False):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, color_system=None, highlight=False)
    show(MatrixView(console))
    return out.getvalue()


def test_table():
    """IO-4: the table has a line for each clause and a column for each peer that was judged."""
    lines = shown(lambda view: view.show(results(right_peer(), flooding_peer(), MISSING))).splitlines()
    cells = {line.split()[1]: line.split()[2:] for line in lines if line.startswith(" C")}
    assert cells["first-gap"] == ["pass", "FAIL"]
    assert cells["stable-after"] == ["pass", "n/a"]
    assert cells["accept-does-not-reset"] == ["pass", "FAIL"]
    assert len(cells) == len(results(right_peer()).clauses)


def test_what_was_missed_is_said():
    """IO-4: below the table, every failure and every clause that does not apply is explained."""
    text = shown(lambda view: view.show(results(right_peer(), flooding_peer(), MISSING)))
    assert "far away: left out, since the program far is missing\n" in text
    assert "right (grpcio 1.2.3): 36 clauses, 36 held\n" in text
    assert "flooding client (grpcio 1.2.3): 36 clauses, 26 held, 3 failed, 2 against advice, 5 not asked\n" in text
    assert "  FAIL CB-2 first-gap: INITIAL_BACKOFF: 0.001 (0.001 to 0.001) s, expected 0.200\n" in text
    assert "  n/a CB-8 stable-after: the client has no such option\n" in text
    assert "  FAIL CB-6 accept-does-not-reset: it ended with status 1\n" in text


def test_the_verdicts_on_one_client_fit_a_terminal():
    """IO-4: the table of one client has 100 columns at most, and says what was seen, allowed, missed and to be read."""
    text = shown(lambda view: view.show_each(results(right_peer(), flooding_peer()), Demands()), terminal=True)
    assert max(map(len, text.splitlines())) <= 100
    words = " ".join(text.split())
    assert "CB-2 first-gap FAIL INITIAL_BACKOFF: 0.001 0.200 0.199 s (0.001 to 0.001) s" in words
    assert "accept-does-not-reset: read https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md" in words


def test_words_of_a_program_are_no_markup():
    """IO-4: a program's output is printed verbatim, and not interpreted as markup."""
    verdicts = tuple(replace(verdict, reason="[red]boom[/red]", measures=()) for verdict in flooding_peer().verdicts)
    text = shown(lambda view: view.show(results(replace(flooding_peer(), verdicts=verdicts))))
    assert "CB-2 first-gap: [red]boom[/red]\n" in text


def play(view):
    """Show the progress of two waves, one after the other."""
    peer = find_peers()[0]
    scenarios = (Scenario.SILENT, Scenario.RESTART)
    waves = [Wave([Trial(peer=peer, staging=STAGINGS[scenario], pace=Pace.REAL)]) for scenario in scenarios]
    with view.progress(waves) as begins:
        for wave in waves:
            begins(wave)


def test_progress_in_plain_lines():
    """IO-4: without a terminal, progress is one line for each wave of trials, without control characters."""
    assert shown(play).splitlines() == [
        "wave 1 of 2, 41 s: grpc_backoff aio silent",
        "wave 2 of 2, 8 s: grpc_backoff aio restart",
    ]


def test_progress_on_a_terminal():
    """IO-4: on a terminal, progress is a bar that is removed at the end."""
    text = shown(play, terminal=True)
    assert "wave 2 of 2, 8 s" in text
    assert text.endswith("\x1b[1A\x1b[2K")


def test_versions_that_nobody_told():
    """IO-4: a client whose trials all ended early reported no versions and is shown without them."""
    text = shown(lambda view: view.show(results(replace(right_peer(), versions={}))))
    assert "right: 36 clauses, 36 held\n" in text
