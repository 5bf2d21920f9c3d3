"""`python -m interop verify`: what counts as a difference, and what the command does about it."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from functools import cache

import pytest
from click.testing import CliRunner

from grpc_judge.clients.peer import Peer
from grpc_judge.conformance import CLAUSES, judge
from grpc_judge.matrix import verify as verify_module
from grpc_judge.matrix.comparison import TOLERANCE, compare, versions_changed
from grpc_judge.matrix.results import to_json, to_summary
from grpc_judge.matrix.verify import verify
from grpc_judge.runner.program import ROOT
from tests.interop_suite.matrix.results import MISSING, flooding_peer, results, right_peer


@cache
def run():
    return results(right_peer(), flooding_peer(), MISSING)


@cache
def summary():
    return to_summary(run())


def changed(clause="first-gap", peer="flooding client", **change):
    """Return the run with one verdict changed: the verdict's `outcome`, or parts of its figure."""
    after = copy.deepcopy(summary())
    verdicts = next(each["verdicts"] for each in after["peers"] if each["name"] == peer)
    verdict = next(each for each in verdicts if each["clause"] == clause)
    verdict |= {name: change.pop(name) for name in ("outcome", "figure") if name in change}
    if change:
        verdict["figure"] |= change
    return after


def saved(folder, name, found):
    (folder / name).write_text(json.dumps(found))
    return str(folder / name)


def test_a_run_is_like_itself():
    """IO-4: a run does not differ from itself, whether as a summary or as full JSON."""
    assert compare(summary(), summary()) == []
    assert compare(summary(), json.loads(json.dumps(to_json(run())))) == []


def test_another_verdict_differs():
    """IO-4: a changed outcome is a difference, described by the client, the clause and both verdicts."""
    (difference,) = compare(summary(), changed(outcome="pass"))
    assert str(difference).startswith("flooding client first-gap: was fail (INITIAL_BACKOFF: 0.001 ")
    assert difference.vanished
    (difference,) = compare(summary(), changed(peer="right", outcome="fail"))
    assert not difference.vanished
    (difference,) = compare(summary(), changed(clause="stable-after", outcome="fail"))
    assert not difference.vanished


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"seen": 0.04}, True),  # of 0.110 s
        ({"seen": 0.1}, False),
        ({"seen": 0.4}, False),  # misses on the other side
        ({"seen": 0.03, "what": "gap 3", "allowed": {"low": 0.3, "high": 0.5}}, True),
        ({"unit": "connections"}, False),
        ({"figure": None}, False),
    ],
)
def test_times_that_miss_alike(change, alike):
    """IO-4: missed times are alike if they miss the same side by a similar fraction of the bound, in any gap."""
    early = {"what": "gap 1", "seen": 0.001, "allowed": {"low": 0.11, "high": 0.29}, "unit": "s", "since": 0.5}
    figure = {"figure": change["figure"]} if "figure" in change else {"figure": early | change}
    assert (compare(changed(figure=early), changed(**figure)) == []) is alike


@pytest.mark.parametrize(
    ("unit", "before", "after", "alike"),
    [
        *(("connections", 391, seen, True) for seen in (391, 40, 3900)),
        *(("connections", 391, seen, False) for seen in (30, 4000)),
        *(("calls", 11, seen, True) for seen in (3, 45)),
        *(("calls", 11, seen, False) for seen in (2, 50)),
    ],
)
def test_counts_that_miss_alike(unit, before, after, alike):
    """IO-4: floods and lost calls depend on races, so counts are alike up to a factor of ten, and of four."""
    figure = {"what": "a count", "allowed": {"low": 0, "high": 0}, "unit": unit, "since": None}
    one, other = (changed("no-flood", figure=figure | {"seen": seen}) for seen in (before, after))
    assert (compare(one, other) == []) is alike


def test_jitter_that_compounds_misses_on_either_side():
    """IO-4: compounding jitter may miss on either side, since chance decides which gap leaves its band."""
    long = {"what": "gap 5", "seen": 1.7, "allowed": {"low": 1.0, "high": 1.6}, "unit": "s", "since": 0.0}
    before = changed("jitter-does-not-compound", outcome="fail", figure=long)
    assert compare(before, changed("jitter-does-not-compound", outcome="fail", figure=long | {"seen": 0.2})) == []


def test_figures_of_what_holds_are_free():
    """IO-4: the figures of verdicts that pass are not compared."""
    assert compare(summary(), changed("keeps-trying", peer="right", seen=99)) == []


def test_peers_that_come_and_go():
    """IO-4: a client or a clause that only one of the two runs judged is a difference."""
    gone = to_summary(results(right_peer(), MISSING))
    (difference,) = compare(summary(), gone)
    assert str(difference) == "flooding client: was judged; is not judged"
    (difference,) = compare(gone, summary())
    assert str(difference) == "flooding client: was not judged; is judged"
    (difference,) = compare(
        summary(), to_summary(results(right_peer(), flooding_peer(), replace(flooding_peer(), name="far away")))
    )
    assert str(difference) == "far away: was left out, since the program far is missing; is judged"
    fewer = to_summary(results(right_peer(), flooding_peer(), MISSING))
    fewer["peers"][0]["verdicts"].pop()
    (difference,) = compare(summary(), fewer)
    assert difference.new == "not judged"


def test_versions_are_named():
    """IO-4: a changed version is reported, but is not a difference."""
    after = to_summary(results(replace(right_peer(), versions={"grpcio": "1.3"}), flooding_peer(), MISSING))
    assert list(versions_changed(summary(), after)) == ["right: grpcio 1.2.3, now 1.3"]
    assert compare(summary(), after) == []


def test_command_on_two_files(tmp_path):
    """IO-4: `--against` compares two files without a run; the exit status says whether they agree."""
    old = saved(tmp_path, "old.json", summary())
    same = CliRunner().invoke(verify, [old, "--against", old])
    assert (same.exit_code, same.output) == (0, f"{2 * len(CLAUSES)} verdicts, 0 differ\n")
    other = CliRunner().invoke(verify, [old, "--against", saved(tmp_path, "new.json", changed(outcome="pass"))])
    assert other.exit_code == 1
    assert other.output.startswith("DIFFERS flooding client first-gap: was fail")
    assert other.output.endswith(f"{2 * len(CLAUSES)} verdicts, 1 differ\n")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"peers": [1]}'])
def test_files_that_are_none(tmp_path, text):
    """IO-4: a file without results produces a one-line error."""
    (tmp_path / "old.json").write_text(text)
    file = str(tmp_path / "old.json")
    result = CliRunner().invoke(verify, [file, "--against", file])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert result.output.startswith("Error: ")


def test_help_states_the_tolerance():
    """IO-4: the help states how two runs are compared."""
    assert TOLERANCE.split()[:3] == ["Verdicts", "must", "be"]
    assert " ".join(TOLERANCE.split()) in " ".join(CliRunner().invoke(verify, ["--help"]).output.split())


class Runs:
    """Stands in for fresh runs: each returns the next of these results, and its arguments are recorded."""

    def __init__(self, monkeypatch, *found):
        self.found = list(found)
        self.asked = []
        monkeypatch.setattr(verify_module, "_run", self)

    async def __call__(self, names, clauses, *, full):
        self.asked.append((list(names), list(clauses), full))
        return copy.deepcopy(self.found.pop(0))


def test_a_fresh_run_has_what_the_old_one_had(monkeypatch, tmp_path):
    """IO-4: a fresh run has the old run's clauses, length and clients, except clients that were missing."""
    runs = Runs(monkeypatch, summary())
    result = CliRunner().invoke(verify, [saved(tmp_path, "old.json", summary()), "--json", str(tmp_path / "new.json")])
    assert result.exit_code == 0, result.output
    assert runs.asked == [(["right", "flooding client"], [clause.name for clause in CLAUSES], False)]
    assert json.loads((tmp_path / "new.json").read_text())["peers"] == summary()["peers"]


def test_a_fresh_run_is_a_run(monkeypatch, tmp_path):
    """IO-4: a client that is missing from the fresh run, or breaks down in it, is a difference."""
    broken = Peer(
        name="right", folder=ROOT, command=(sys.executable, "-c", "raise SystemExit('no')"), configurable=frozenset()
    )
    monkeypatch.setattr(verify_module, "find_peers", lambda: [broken, replace(broken, name="of no concern")])
    clauses = [clause for clause in CLAUSES if clause.name == "waits-for-settings"]
    old = to_summary(results(*(only(each, clauses) for each in (right_peer(), flooding_peer())), clauses=clauses))
    result = CliRunner().invoke(verify, [saved(tmp_path, "old.json", old)])
    assert result.exit_code == 1
    assert "DIFFERS right waits-for-settings: was pass (holds, 3 measured); is fail (right ended with " in result.output
    assert "DIFFERS flooding client: was judged; is not judged\n" in result.output
    assert "of no concern" not in result.output


def only(peer, clauses):
    return replace(peer, verdicts=judge(peer.evidence, clauses))


QUIET = {"clause": "growth", "outcome": "pass"}
NEW = {"peer": "right", "outcome": "fail"}


@pytest.mark.parametrize(
    ("change", "asked", "stays"),
    [
        (QUIET, (["flooding client"], ["growth"], False), False),
        (QUIET, (["flooding client"], ["growth"], False), True),
        (NEW, (["right"], ["first-gap"], False), False),
        (NEW, (["right"], ["first-gap"], False), True),
    ],
    ids=["shows again", "never shows", "does not come back", "comes back"],
)
def test_a_failure_that_only_one_run_saw_is_looked_for_again(monkeypatch, tmp_path, change, asked, stays):
    """IO-4: if only one run saw a failure, that client and clause alone are rerun, up to three times.

    It is a difference if the runs still do not agree then.
    """
    other = changed(**change)
    runs = Runs(monkeypatch, other, other, *([other] * 2 if stays else [summary()]))
    result = CliRunner().invoke(verify, [saved(tmp_path, "old.json", summary())])
    assert result.exit_code == (1 if stays else 0), result.output
    assert runs.asked[1:] == [asked] * (3 if stays else 2)


@pytest.mark.parametrize(("known", "status"), [("first-gap", 0), ("growth", 1)])
def test_a_failure_that_appears_and_is_known(monkeypatch, tmp_path, known, status):
    """IO-4: a new failure that the findings explain is not a difference, but any other new failure is."""
    (tmp_path / "findings.toml").write_text(f'[[finding]]\nclauses = ["{known}"]\nmeans = "It is so."\n')
    peer = Peer(name="right", folder=tmp_path, command=("true",), configurable=frozenset())
    monkeypatch.setattr(verify_module, "find_peers", lambda: [peer])
    old, new = saved(tmp_path, "old", summary()), saved(tmp_path, "new", changed(peer="right", outcome="fail"))
    result = CliRunner().invoke(verify, [old, "--against", new])
    assert result.exit_code == status
    said = "by chance, as its findings say: " if known == "first-gap" else "DIFFERS "
    assert f"{said}right first-gap: was pass" in result.output
