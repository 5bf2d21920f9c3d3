"""`python -m interop run`: how peers and clauses are chosen, and the command itself."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from grpc_judge.checkout import cli
from grpc_judge.clients.peer import Peer, find_peers
from grpc_judge.conformance import CLAUSES, Absent, Outcome, Scenario
from grpc_judge.conformance.scenario import SCHEDULE
from grpc_judge.matrix import run as run_module
from grpc_judge.matrix.run import SHORT, choose_clauses, run_all
from grpc_judge.matrix.scenarios import COMPRESSED, STAGINGS, Pace
from grpc_judge.matrix.view import MatrixView
from grpc_judge.runner.program import ROOT, choose
from grpc_judge.timeline import Lag
from tests.interop_suite.conformance import made

OURS = find_peers()[0]
QUICK = ["waits-for-ready"]
MADE_UP = Peer(name="made up", folder=ROOT, command=(sys.executable,), configurable=frozenset())
FAR_AWAY = replace(MADE_UP, name="far away", programs=("no-such-program",))
UNBUILT = replace(MADE_UP, name="unbuilt", build=((sys.executable, "-c", "raise SystemExit('no compiler')"),))
BROKEN = replace(MADE_UP, name="broken", command=(sys.executable, "-c", "raise SystemExit('no')"))


def view():
    return MatrixView(Console(file=io.StringIO(), width=200))


def command(monkeypatch, *arguments, peers=(OURS,)):
    monkeypatch.setattr(run_module, "find_peers", lambda: list(peers))
    return CliRunner().invoke(cli, ["run", *map(str, arguments)])


def test_peers_are_chosen_by_name_or_folder():
    """IO-4: `--peers` accepts peers' names, folders or first words, repeated or separated by commas."""
    peers = find_peers()
    assert choose(peers, "--peers", ()) == [peer for peer in peers if peer.name != "reference"]
    assert [peer.name for peer in choose(peers, "--peers", ("reference",))] == ["reference"]
    chosen = choose(peers, "--peers", ("grpcio aio, grpclib_aio", "grpc_backoff_aio"))
    assert [peer.name for peer in chosen] == ["grpc_backoff aio", "grpcio aio", "grpclib"]
    assert [peer.name for peer in choose(peers, "--peers", ("grpcio",))] == ["grpcio aio", "grpcio sync"]
    with pytest.raises(ValueError, match=r"^--peers=grpci: expected one of grpc_backoff aio, .*grpcio aio, "):
        choose(peers, "--peers", ("grpci",))


def test_clauses_are_chosen_by_rule_or_name():
    """IO-4: `--rules` accepts names of clauses, and rules, which stand for all of their clauses."""
    assert choose_clauses(()) == list(CLAUSES)
    limits = [clause.name for clause in CLAUSES if clause.rule == "CB-3"]
    assert {"limit", "waits-for-settings"} < set(limits)
    assert [clause.name for clause in choose_clauses(("CB-3", "growth"))] == [*limits, "growth"]
    with pytest.raises(ValueError, match=r"^--rules=CB-99: expected one of CB-1, "):
        choose_clauses(("CB-99",))


def test_our_own_client_passes_what_is_quick(monkeypatch, tmp_path):
    """IO-4: the command prints verdicts, writes JSON and a report, and exits with status 0 if our client passes.

    Takes six seconds of real time. On a busy machine a gap can be some milliseconds too long, which looks like the
    client's own fault, so the test runs the command up to three times.
    """
    file, folder = tmp_path / "all.json", tmp_path / "report"
    for _ in range(3):
        rules = "waits-for-ready,lost-is-not-repeated"
        result = command(monkeypatch, "--rules", rules, "--json", file, "--report", folder)
        if result.exit_code == 0:
            break
    assert result.exit_code == 0, result.output
    assert "grpc_backoff aio (grpc_backoff " in result.output
    assert ": 2 clauses, 2 held\n" in result.output
    (peer,) = json.loads(file.read_text())["peers"]
    assert {verdict["clause"]: verdict["outcome"] for verdict in peer["verdicts"]} == {
        "lost-is-not-repeated": "pass",
        "waits-for-ready": "pass",
    }
    assert {path.name for path in folder.iterdir()} == {"README.md", "results.json"}


@pytest.mark.parametrize("must_pass", [False, True])
def test_only_a_client_that_must_pass_makes_a_failure(monkeypatch, must_pass):
    """IO-4: the exit status is 1 if a client that must pass fails, whatever the reason, and 0 if only others do."""
    monkeypatch.delenv("GRPC_BACKOFF_REQUIRE_PEERS", raising=False)
    result = command(monkeypatch, "--rules", *QUICK, peers=[replace(BROKEN, must_pass=must_pass)])
    assert result.exit_code == must_pass
    assert "FAIL CH-3 waits-for-ready: broken ended with status 1: no" in result.output


def test_a_client_that_was_chosen_must_pass(monkeypatch):
    """IO-4: the exit status is 1 if a client that was named fails, unless that failure is allowed."""
    monkeypatch.delenv("GRPC_BACKOFF_REQUIRE_PEERS", raising=False)
    chosen = [*("--rules", "waits-for-settings,acknowledges-settings"), *("--peers", "broken")]
    assert command(monkeypatch, *chosen, peers=[BROKEN]).exit_code == 1
    assert command(monkeypatch, *chosen, "--allow", "CB-3", peers=[BROKEN]).exit_code == 1
    result = command(monkeypatch, *chosen, "--allow", "CB-3,acknowledges-settings", peers=[BROKEN])
    assert result.exit_code == 0
    assert result.output.count(" known ") == 2
    assert "acknowledges-settings:\n  read https://github.com/grpc/grpc/" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--short", "--require", "CB-7"], "--require=CB-7: expected one of CB-2, "),
        (["--require", "CB-99"], "--require=CB-99: expected one of CB-1, "),
    ],
)
def test_what_is_required_has_to_be_judged(monkeypatch, options, said):
    """IO-4: a clause that this run does not judge cannot be required."""
    result = command(monkeypatch, *options)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {said}")


def test_nothing_judged_has_its_own_status(monkeypatch):
    """IO-4: the exit status is 3 if no clause could be judged, and a line says so."""
    monkeypatch.delenv("GRPC_BACKOFF_REQUIRE_PEERS", raising=False)
    result = command(monkeypatch, "--rules", "stable-after", "--peers", "made up", peers=[MADE_UP])
    assert result.exit_code == 3, result.output
    assert result.output.endswith("Nothing failed, but no clause could be judged of one client or more.\n")


@pytest.mark.parametrize(("required", "status"), [("", 0), ("0", 0), ("1", 1)])
def test_missing_peers(monkeypatch, required, status):
    """IO-4: a missing peer is named and left out; it is an error if peers are required."""
    monkeypatch.setenv("GRPC_BACKOFF_REQUIRE_PEERS", required)
    result = command(monkeypatch, "--rules", *QUICK, peers=[FAR_AWAY, UNBUILT])
    assert result.exit_code == status
    assert "far away: left out, since the program no-such-program is missing" in result.output
    assert re.search(r"unbuilt: left out, since \S+ failed: no compiler\n", result.output)


def test_short_is_two_behaviours():
    """IO-4: `--short` plays two scenarios, a server that hangs up and an outage."""
    assert {clause.scenario.label for clause in SHORT} == {"hang_up", "outage"}
    assert {"first-gap", "growth", "recovery"} <= {clause.name for clause in SHORT}


@pytest.mark.parametrize("other", [["--full"], ["--rules", "CB-5"]])
def test_short_stands_alone(monkeypatch, other):
    """IO-4: `--short` cannot be combined with `--full` or `--rules`."""
    result = command(monkeypatch, "--short", *other)
    assert result.exit_code == 2
    assert "--short goes with neither --rules nor --full" in result.output


@pytest.mark.parametrize("arguments", [["--peers", "nobody"], ["--rules", "CB-99"]])
def test_a_wrong_choice_is_one_line(monkeypatch, arguments):
    """IO-4: an unknown peer or rule produces a one-line error that lists the known ones."""
    result = command(monkeypatch, *arguments)
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert result.output.startswith(f"Error: {arguments[0]}={arguments[1]}: expected one of ")


@pytest.mark.parametrize(
    ("clause", "played"),
    [
        ("first-attempt", {"restart"}),
        ("growth", {"hang_up", "steady"}),
        ("refused-backs-off", {"outage", "hang_up", "steady", "reset"}),
    ],
)
async def test_a_clause_alone_is_played_with_what_it_needs(monkeypatch, clause, played):
    """IO-4: what a clause takes for granted, such as the client's own schedule, is found out with it."""
    seen = []

    async def perform(schedule, _view, record):
        for trial in (trial for wave in schedule for trial in wave.trials):
            seen.append(trial.staging.scenario.label)
            record(trial, Absent("not played"), {})

    monkeypatch.setattr(run_module, "_perform_all", perform)
    results = await run_all([MADE_UP], choose_clauses((clause,)), view())
    assert set(seen) == played
    assert [each.name for each in results.clauses] == [clause]


@pytest.mark.parametrize(
    ("lasting", "outcome"),
    [
        ([0.5004, 0.1], Outcome.PASS),
        ([0.5004, 0.5004], Outcome.FAIL),
        ([0.1], Outcome.PASS),
        ([0.9], Outcome.FAIL),
    ],
    ids=["once too close", "twice too close", "right", "wrong"],
)
async def test_what_is_too_close_to_tell_is_tried_again(monkeypatch, lasting, outcome):
    """IO-4: a clause that is missed by less than the tolerance fails only if another trial misses it, too."""
    left = [made.restart(first=made.WANTED + each) for each in lasting]

    async def perform(schedule, _view, record):
        for trial in (trial for wave in schedule for trial in wave.trials):
            record(trial, left.pop(0), {})

    monkeypatch.setattr(run_module, "_perform_all", perform)
    results = await run_all([MADE_UP], choose_clauses(("first-attempt",)), view())
    assert [verdict.outcome for verdict in results.peers[0].verdicts] == [outcome]
    assert left == []


def recorded_late(seen):
    """Return this evidence of a judge that recorded every connection three seconds late."""
    lags = tuple(Lag(at=visit.accepted + 0.001, by=3.0) for visit in seen.visits)
    return replace(seen, timeline=replace(seen.timeline, lags=lags))


async def test_what_a_clause_needs_is_played_again_if_the_judge_was_late(monkeypatch):
    """IO-4: a clause that is judged alone does not rest on a schedule that was recorded late."""
    right, played = made.right_client(), []
    left = {scenario: [recorded_late(right[scenario]), right[scenario]] for scenario in SCHEDULE}

    async def perform(schedule, _view, record):
        for trial in (trial for wave in schedule for trial in wave.trials):
            scenario = trial.staging.scenario
            played.append(scenario)
            record(trial, left.get(scenario, [right[scenario]]).pop(0), {})

    monkeypatch.setattr(run_module, "_perform_all", perform)
    results = await run_all([MADE_UP], choose_clauses(("refused-backs-off",)), view())
    assert [verdict.outcome for verdict in results.peers[0].verdicts] == [Outcome.PASS]
    assert (played.count(Scenario.HANG_UP), len(played)) == (2, 5)


async def test_what_a_client_has_no_option_for_is_said():
    """CB-8: a client that does not support `stable-after` is not judged by that clause, and the verdict says so."""
    (clause,) = choose_clauses(("stable-after",))
    results = await run_all([MADE_UP], [clause], view())
    (verdict,) = results.peers[0].verdicts
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert str(verdict) == "the client does not have this option (stable-after)"


async def test_a_trial_that_hangs_is_given_up(monkeypatch):
    """IO-4: a trial that hangs is abandoned, and its clauses count as failed. Takes two seconds."""
    seconds = STAGINGS[Scenario.OUTAGE].seconds(COMPRESSED, Pace.COMPRESSED)
    monkeypatch.setattr(run_module, "_OVERHEAD", 0.5 - seconds)
    results = await run_all([OURS], choose_clauses(QUICK), view())
    (verdict,) = results.peers[0].verdicts
    assert (verdict.outcome, str(verdict)) == (Outcome.FAIL, "the trial was not over after 0.5 s")
