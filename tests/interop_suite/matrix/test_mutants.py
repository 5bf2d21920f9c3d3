"""`python -m interop mutants`: the reference client with each of its defects, the rounds that count, the table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from grpc_judge.checkout import cli
from grpc_judge.clients.reference.defects import DEFECTS
from grpc_judge.conformance import CLAUSES, Outcome
from grpc_judge.matrix import mutants as mutants_module
from grpc_judge.matrix.judged import judged, table
from tests.interop_suite.matrix.results import results, right_peer

NAMES = {clause.name for clause in CLAUSES}


def failing(*clauses, outcome=Outcome.FAIL):
    return tuple(
        replace(verdict, outcome=outcome) if verdict.clause in clauses else verdict for verdict in right_peer().verdicts
    )


def command(monkeypatch, verdicts, *arguments):
    asked = []

    async def run_all(peers, clauses, _view, **options):
        asked.append(options)
        return results(
            *(replace(right_peer(), name=peer.name, verdicts=verdicts(peer)) for peer in peers), clauses=clauses
        )

    monkeypatch.setattr(mutants_module, "run_all", run_all)
    return CliRunner().invoke(cli, ["mutants", *arguments]), asked


def as_expected(peer):
    defect = peer.name.split()[0]
    return right_peer().verdicts if defect == "none" else failing(*DEFECTS[defect].clauses)


def test_each_defect_names_clauses_that_there_are():
    """IO-4: every defect names existing clauses."""
    assert {clause for defect in DEFECTS.values() for clause in defect.clauses} <= NAMES


def test_every_clause_has_a_defect_that_it_sees():
    """IO-4: for every clause except `waits-for-settings`, there is a defect that fails it."""
    without = NAMES - {clause for defect in DEFECTS.values() for clause in defect.clauses}
    # A client that abandons attempts before SETTINGS has a shorter limit, which another clause judges.
    assert without == {"waits-for-settings"}


def test_all_as_expected(monkeypatch, tmp_path):
    """IO-4: the exit status is 0 if each defect fails exactly its own clause, and the right client fails none."""
    file = tmp_path / "found.json"
    result, asked = command(monkeypatch, as_expected, "--rounds", "2", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert len(asked) == 1, "all rounds run side by side"
    assert "none: no clause in 2 of 2\n" in result.output
    assert "cap-half: cap in 2 of 2\n" in result.output
    assert f"{len(DEFECTS) + 1} judged, 0 wrong: none\n" in result.output
    assert json.loads(file.read_text())["defects"][0]["name"] == "none"


def test_another_clause_is_a_wrong_verdict(monkeypatch):
    """IO-4: a defect that fails a second clause is reported with that clause."""
    result, _ = command(monkeypatch, lambda _: failing("cap", "growth"), "--defects", "cap-half")
    assert result.exit_code == 1
    assert result.output == "cap-half: cap in 0 of 1, growth 1 times\n1 judged, 1 wrong: cap-half\n"


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--full"], 1)])
def test_a_small_defect_need_not_be_seen_in_short_time(monkeypatch, options, status):
    """IO-4: a small defect may be missed in compressed time, but not in the full run."""
    result, asked = command(monkeypatch, lambda _: right_peer().verdicts, "--defects", "cap-0.85", *options)
    assert result.exit_code == status
    assert asked[0]["full"] is bool(options)


def test_inconclusive_verdicts_are_counted(monkeypatch):
    """IO-4: inconclusive verdicts are not failures, but the output counts them."""
    late = failing("growth", outcome=Outcome.INCONCLUSIVE)
    result, _ = command(monkeypatch, lambda _: late, "--defects", "none")
    assert result.output.startswith("none: no clause in 1 of 1, 1 inconclusive\n")
    assert result.exit_code == 0


def test_own_scenarios_are_those_of_the_clause(monkeypatch):
    """IO-4: `--own` plays the scenario of the defect's clause, and the scenarios that show the client's schedule."""
    _, asked = command(monkeypatch, as_expected, "--defects", "reset-never", "--own")
    assert {each.label for each in asked[0]["wanted"]["reset-never 1"]} == {"hang_up", "steady", "reset"}


def test_a_defect_that_there_is_not(monkeypatch):
    """IO-4: an unknown defect produces a one-line error that lists the known ones."""
    result, _ = command(monkeypatch, as_expected, "--defects", "nothing")
    assert result.exit_code == 1
    assert result.output.startswith("Error: --defects=nothing: expected one of none, initial-half, ")


def test_rounds_that_count():
    """IO-4: a round counts only if the defect's own clause fails, no other does, and some clause could be judged."""
    found = judged("cap-half", [failing("cap"), failing("cap", "growth"), failing()])
    assert (found.seen, found.rounds, dict(found.others), found.right) == (1, 3, {"growth": 1}, False)
    assert found.wrong[0].startswith("growth: ")
    assert judged("none", [failing(), failing("cap")]).seen == 1
    late = judged("none", [failing(*NAMES, outcome=Outcome.INCONCLUSIVE)])
    assert (late.seen, late.inconclusive) == (0, len(NAMES))


def test_the_table():
    """IO-4: the table says in how many rounds each defect was detected, and what else failed."""
    rows = table([judged("none", [failing()]), judged("cap-0.85", [failing("cap"), failing("growth")])]).splitlines()
    assert rows[2:] == [
        "| none | a correct client | | 1 of 1 | |",
        "| cap-0.85 | MAX_BACKOFF is 15 % too short (small) | cap | 1 of 2 | growth 1 |",
    ]


def test_the_table_goes_into_a_page(monkeypatch, tmp_path):
    """IO-4: --page replaces the table of the same command; a page without a place for it is refused at once."""
    page, place = tmp_path / "judge.md", "python -m interop mutants --own -->"
    page.write_text(f"before\n<!-- begin: {place}\n\nan old table\n<!-- end: {place}\nafter\n")
    chosen = ("--defects", "cap-half", "--page", str(page))
    result, asked = command(monkeypatch, as_expected, *chosen)
    assert (result.exit_code, asked) == (1, [])
    assert "expected a page with the comment <!-- begin: python -m interop mutants -->" in result.output
    for _ in range(2):
        result, _ = command(monkeypatch, as_expected, *chosen, "--own")
        assert result.exit_code == 0
    before, _, rows = page.read_text().partition(f"\n<!-- begin: {place}\n")
    rows, _, after = rows.partition(f"<!-- end: {place}\n")
    assert (before, after) == ("before", "after\n")
    assert rows.strip().splitlines()[-1] == "| cap-half | MAX_BACKOFF is halved | cap | 1 of 1 | |"
    assert "an old table" not in rows
