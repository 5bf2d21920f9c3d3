"""The verdicts on a defect over several rounds, and the table that shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_judge.conformance import Outcome
from grpc_judge.matrix.judged import has_place, insert, judged, table
from tests.interop_suite.matrix.results import right_peer

COMMAND = "python -m interop mutants"
PAGE = f"before\n<!-- begin: {COMMAND} -->\n\nan old table\n<!-- end: {COMMAND} -->\nafter\n"


def failing(*clauses):
    return [
        replace(verdict, outcome=Outcome.FAIL) if verdict.clause in clauses else verdict
        for verdict in right_peer().verdicts
    ]


def test_a_round_with_another_clause_does_not_count():
    """IO-4: a defect is detected in a round only if its own clause fails and no other does."""
    found = judged("cap-half", [failing("cap"), failing("cap", "growth"), failing()])
    assert (found.seen, found.rounds, dict(found.others), found.right) == (1, 3, {"growth": 1}, False)
    assert found.wrong[0].startswith("growth: ")


def test_a_correct_client_fails_nothing():
    """IO-4: the correct client is judged correctly if no clause fails."""
    assert judged("none", [failing(), failing()]).right
    assert judged("none", [failing(), failing("cap")]).seen == 1


def test_a_round_without_any_verdict_is_not_a_pass():
    """IO-4: a client counts as not judged if every clause is inconclusive."""
    late = [replace(verdict, outcome=Outcome.INCONCLUSIVE) for verdict in right_peer().verdicts]
    found = judged("none", [late])
    assert (found.seen, found.inconclusive) == (0, len(late))


def test_the_table():
    """IO-4: the table says in how many rounds each defect was detected, and what else failed."""
    rows = table([judged("none", [failing()]), judged("cap-0.85", [failing("cap"), failing("growth")])]).splitlines()
    assert rows[2:] == [
        "| none | a correct client | | 1 of 1 | |",
        "| cap-0.85 | MAX_BACKOFF is 15 % too short (small) | cap | 1 of 2 | growth 1 |",
    ]


def test_a_table_replaces_the_one_before(tmp_path):
    """IO-4: a new table replaces only the text between the command's two comments."""
    page = tmp_path / "judge.md"
    page.write_text(PAGE)
    insert(page, COMMAND, "a new table")
    insert(page, COMMAND, "a newer table")
    assert page.read_text() == PAGE.replace("an old table", "a newer table")


@pytest.mark.parametrize(("command", "there"), [(COMMAND, True), (f"{COMMAND} --full", False)])
def test_a_page_without_the_comments(tmp_path, command, there):
    """IO-4: `has_place` finds the two comments in a page only for the command that they name."""
    page = tmp_path / "judge.md"
    page.write_text(PAGE)
    assert has_place(page, command) is there
