"""`grpc-backoff ledger`: inspecting and changing a ledger, on either database."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner
from google.protobuf.wrappers_pb2 import StringValue

from grpc_backoff.cli.commands import cli
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import Ledger
from grpc_backoff.ledger.records import AttemptReport
from grpc_backoff.ledger.transactions import recording
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.ledger import conftest as databases
from tests.ledger.steps import fail_many

STEPS = RETRY_PRESETS["steps"]
server, postgres_url, url = databases.server, databases.postgres_url, databases.url


def filled(url):
    """Return the ids of four operations: failed, in conflict, succeeded, and still waiting."""

    async def fill():
        async with await Ledger.open(url) as ledger:
            prepared = [
                ledger.prepared(
                    "shop:443",
                    f"/shop.Orders/{method}",
                    StringValue(value="secret payload").SerializeToString(),
                    idempotency_key=key,
                )
                for method, key in (("Place", "a"), ("Place", "b"), ("Cancel", "c"), ("Cancel", "d"))
            ]
            ids = [told.id for told in await ledger.submit_many(prepared)]
            failures = [FailedAttempt("INTERNAL"), FailedAttempt("ABORTED"), None]
            await recording.record_ends(
                ledger.store,
                [AttemptReport(id_, None, STEPS, failure, "boom") for id_, failure in zip(ids, failures, strict=False)],
            )
            return ids

    return asyncio.run(fill())


def run(url, *arguments):
    return CliRunner().invoke(cli, ["ledger", "--db", url, *arguments])


def read(url, *arguments):
    done = run(url, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def listed(url, *arguments):
    return [operation["id"] for operation in read(url, "list", *arguments)]


def test_status(url):
    """LG-7: `status` shows the number of operations in each state, and the age of the oldest that waits."""
    filled(url)

    document = read(url, "status")

    assert document["length"] == 1
    assert document["states"]["failed"] == document["states"]["conflict"] == document["states"]["succeeded"] == 1
    assert 0 <= document["oldest_age"] < 60
    assert "1 unfinished; the longest wait so far is" in run(url, "status").stdout
    assert read(url, "status", "--target", "elsewhere")["length"] == 0


def test_list(url):
    """LG-7: `list` filters by state, target, method, age, key and code, goes by page, and never shows payloads."""
    ids = filled(url)

    assert listed(url) == ids
    assert listed(url, "--state", "failed", "--state", "conflict") == ids[:2]
    assert listed(url, "--method", "shop.Orders/Cancel") == listed(url, "--method", "/shop.Orders/Cancel") == ids[2:]
    assert listed(url, "--target", "nowhere") == listed(url, "--older-than", "1h") == []
    assert listed(url, "--limit", "1") == ids[:1]
    assert listed(url, "--key", "b") == listed(url, "--code", "aborted") == [ids[1]]
    assert listed(url, "--order-key", "none") == listed(url, "--code", "lost") == []
    for wrong in (("--code", "UNAVALIABLE"), ("--target", "\udcff")):
        refused = run(url, "list", *wrong)
        assert (refused.exit_code, f"={wrong[1]!r}: expected" in refused.output) == (2, True)
    assert listed(url, "--newest-first", "--limit", "2") == ids[:1:-1]
    assert listed(url, "--newest-first", "--after", ids[2]) == ids[1::-1]
    output = run(url, "list").output + run(url, "list", "--json").output
    assert ids[0] in output
    assert "secret" not in output


def test_show(url):
    """LG-7, LG-11: `show` prints an operation with its attempts; the payload is decoded only with `--proto`."""
    ids = filled(url)

    document = read(url, "show", ids[0])

    assert (document["state"], document["code"], document["details"]) == ("failed", "INTERNAL", "boom")
    assert [attempt["code"] for attempt in document["attempts_made"]] == ["INTERNAL"]
    assert document["request"] == {"bytes": 16}
    text = run(url, "show", ids[0]).stdout
    assert "16 bytes" in text
    assert "secret" not in text
    decoded = read(url, "show", ids[0], "--proto", "google.protobuf.wrappers_pb2:StringValue")
    assert decoded["request"] == 'value: "secret payload"'
    refused = run(url, "show", ids[0], "--proto", "nowhere:Order")
    assert (refused.exit_code, "--proto nowhere:Order" in refused.output) == (2, True)


def test_show_says_units(url):
    """LG-17, LG-19: `show` prints each time as a date, and each size in bytes."""

    async def fill():
        async with await Ledger.open(url) as ledger:
            return await ledger.submit("shop:443", "/m/m", b"", not_after=4e9, keep_response=100)

    text = " ".join(run(url, "show", asyncio.run(fill()).id).stdout.split())
    assert "not_after 2096-10-02T07:06:40.000+00:00" in text
    assert "keep_response 100 bytes" in text


def test_replay(url):
    """LG-7: `replay` takes ids in either case, or a filter; if one of them cannot be replayed, it exits with 1."""
    ids = filled(url)

    refused = run(url, "replay", ids[0].upper(), ids[2])
    assert (refused.exit_code, refused.stdout) == (1, "1 replayed.\n")
    assert run(url, "replay", ids[0]).exit_code == 1  # it is already pending
    assert f"these operations do not exist, or their state does not allow it: {ids[2]}" in refused.output
    assert read(url, "show", ids[0])["state"] == "pending"
    assert run(url, "replay", "--all", "--method", "shop.Orders/Cancel").stdout == "0 replayed.\n"
    assert run(url, "replay").exit_code == run(url, "replay", "--all", ids[0]).exit_code == 2
    filtered = ["replay", "--target", "x"], ["replay", "--expired"], ["discard", "--state", "failed"]
    nearly_none = ["discard", "--target", ""], ["replay", "--method", ""], ["discard", "--older-than", "0"]
    for command, *flags in (*filtered, *nearly_none):
        refused = run(url, command, ids[2], *flags)
        assert (refused.exit_code, refused.stderr) == (2, "Error: filters require --all\n")
    unknown = run(url, "replay", "nonsense")
    assert (unknown.exit_code, "expected an operation id (a UUID)" in unknown.output) == (1, True)


def test_no_method(url):
    """LG-7: a filter for a method that is named without its service is refused, because it would match nothing."""
    for command in (("list",), ("replay", "--all"), ("discard", "--all", "--state", "failed")):
        refused = run(url, *command, "--method", "Place")
        expected = "Error: --method='Place': expected SERVICE/METHOD, such as shop.Orders/Place\n"
        assert (refused.exit_code, refused.stderr) == (2, expected)


def test_replay_of_many(url):
    """LG-7: `replay --all` goes through the failed operations in batches, without their requests."""

    async def fill():
        async with await Ledger.open(url) as ledger:
            await fail_many(ledger, 1200)

    asyncio.run(fill())

    assert run(url, "replay", "--all", "--target", "dns:///shop:443").stdout.endswith("1200 replayed.\n")
    assert read(url, "status")["states"]["pending"] == 1200


def test_retarget(url):
    """LG-10: `retarget` moves operations to another target, except those that succeeded."""
    filled(url)

    assert run(url, "retarget", "shop:443", "store:443").stdout == "3 moved.\n"
    assert len(read(url, "list", "--target", "store:443")) == 3


def test_resolve(url, tmp_path):
    """LG-8: `resolve` ends a conflict with another request and refuses operations in any other state."""
    ids = filled(url)
    file = tmp_path / "request"
    file.write_bytes(b"other")

    assert run(url, "resolve", ids[1], "--request", str(file)).stdout == "1 resolved.\n"
    document = read(url, "show", ids[1])
    assert (document["state"], document["request"]) == ("pending", {"bytes": 5})
    again = run(url, "resolve", ids[1])
    assert (again.exit_code, f"operation {ids[1]} is pending, not in conflict" in again.output) == (1, True)


def test_discard(url):
    """LG-7: `discard` takes ids or a filter; `--all` is refused without a filter."""
    ids = filled(url)

    assert run(url, "discard", ids[3]).stdout == "1 discarded.\n"
    assert run(url, "discard", "--all").exit_code == 2
    assert run(url, "discard", "--all", "--state", "failed").stdout == "1 discarded.\n"
    assert read(url, "status")["states"]["discarded"] == 2


def test_prune(url):
    """LG-7, LG-11, seed 003: `prune` deletes operations that ended long ago, and failed ones only with `--failed`."""
    filled(url)

    assert run(url, "prune").stdout == "0 pruned.\n"
    assert run(url, "prune", "--older-than", "0").stdout == "1 pruned.\n"
    assert run(url, "prune", "--older-than", "0", "--failed").stdout == "2 pruned.\n"
    for time in ("soon", "²"):
        done = run(url, "prune", "--older-than", time)
        assert (done.exit_code, f"{time}: expected " in done.output) == (2, True)


def test_watch(url):
    """LG-7: `watch` prints the status repeatedly; with `--json`, it prints one line each time."""
    filled(url)

    lines = run(url, "watch", "--json", "--every", "10ms", "--times", "3").stdout.splitlines()

    assert [json.loads(line)["length"] for line in lines] == [1, 1, 1]
    assert "1 unfinished" in run(url, "watch", "--times", "1").stdout


def test_migrate(url):
    """LG-13: `migrate` creates the tables; without them, other commands fail."""
    if "://" not in url:
        assert "there is no such file" in run(url, "status").output
    assert run(url, "status").exit_code == 1

    assert run(url, "migrate").stdout.startswith("The tables have version ")
    assert run(url, "status").stdout.endswith("No operation is unfinished.\n")
    assert run(url, "list").stdout == "No operation matches.\n"
    assert read(url, "status")["length"] == 0


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "file:{}", "file:{}?mode=rwc"])
def test_a_file_that_is_not_there(tmp_path, form):
    """LG-7: `status` never creates a database file, whether it is given as a path or as a URL."""
    done = run(form.format(tmp_path / "nowhere.db"), "status")

    assert (done.exit_code, "there is no such file" in done.output) == (1, True)
    assert [*tmp_path.iterdir()] == []


def test_a_password_is_not_shown():
    """LG-11: an error for a connection string that is not supported does not show its password."""
    done = run("host=h password=hunter2", "status")

    assert done.exit_code == 2
    assert "hunter2" not in done.output


def test_what_cannot_be_opened(tmp_path):
    """LG-9: if a database cannot be opened, the command prints a one-line error and exits with status 1."""
    file = tmp_path / "ledger.db"
    file.write_bytes(b"no database at all, but long enough to be read as one" * 99)

    done = run(str(file), "status")

    assert done.exit_code == 1
    assert "the file is not a SQLite database" in done.output
    assert "Traceback" not in done.output
    assert run("mysql://localhost/x", "status").exit_code == 2


@pytest.mark.parametrize(
    "command", ["status", "list", "show", "replay", "resolve", "discard", "retarget", "prune", "migrate", "watch"]
)
def test_help(command):
    """LG-7: every command prints its `--help` without `--db`; otherwise, the command fails without it."""
    runner = CliRunner(env={"GRPC_BACKOFF_LEDGER": None})
    shown = runner.invoke(cli, ["ledger", command, "--help"])
    arguments = {"show": ["x"], "resolve": ["x"], "replay": ["--all"], "discard": ["x"], "retarget": ["x", "y"]}
    refused = runner.invoke(cli, ["ledger", command, *arguments.get(command, [])])

    assert (shown.exit_code, f"ledger {command} [OPTIONS]" in shown.output) == (0, True)
    assert (refused.exit_code, "Missing option '--db'" in refused.output) == (2, True)


def test_pause(url):
    """LG-16: `pause` and `resume` stop and continue a target, and `status` shows it; a second `resume` says so."""
    filled(url)

    assert run(url, "pause", "shop:443").stdout == "shop:443 is paused.\n"
    assert read(url, "status")["paused"] == ["shop:443"]
    assert "Paused: shop:443." in run(url, "status").stdout
    assert run(url, "resume", "shop:443").stdout == "shop:443 is no longer paused.\n"
    again = run(url, "resume", "shop:443")
    assert (again.exit_code, "shop:443 is not paused" in again.output) == (1, True)


def test_held_keys(url):
    """LG-15: `status` shows how many order keys are held."""

    async def fill():
        async with await Ledger.open(url) as ledger:
            told = await ledger.submit("shop:443", "/shop.Orders/Place", b"", order_key="a")
            await ledger.record_failure(told.id, "INVALID_ARGUMENT")

    asyncio.run(fill())
    assert read(url, "status")["held_keys"] == 1
    assert "in conflict: 1." in run(url, "status").stdout
