"""Manual actions on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.transactions import manual, queries, recording
from tests.ledger.conftest import connected, submission
from tests.ledger.steps import STEPS, claimed, failed, one, submitted


async def test_begin_anew(store):
    """LG-7, LG-8: `begin_anew` resets the attempts but keeps the history; it may replace the request of a conflict."""
    ids = await submitted(store, 1, 2)
    first, _ = await claimed(store, 2)
    await failed(store, first, failure=FailedAttempt("ABORTED"))

    assert await manual.begin_anew(store, [ids[0]], [OperationState.FAILED], None) == []
    assert await manual.begin_anew(store, ids, [OperationState.CONFLICT], b"another") == [ids[0]]
    operation = await one(store, ids[0])
    assert (operation.state, operation.attempts, operation.request) == (OperationState.PENDING, 0, b"another")
    assert (operation.recorded, operation.finished) == (1, None)
    [again] = await claimed(store)
    await failed(store, again)
    assert [attempt.number for attempt in await queries.attempts(store, ids[0])] == [1, 2]
    assert (await one(store, ids[0])).attempts == 1


async def test_discard_is_final(store):
    """LG-7: a discarded operation is not claimed, and a late success does not bring it back."""
    ids = await submitted(store, 1, 2)
    [first] = await claimed(store)

    assert sorted(await manual.discard(store, [*ids, submission(9).id])) == sorted(ids)
    assert await manual.discard(store, ids) == []
    told = (await recording.record_ends(store, [AttemptReport(first.id, first.lease_token, STEPS)]))[0]

    assert (told.state, told.live) == (OperationState.DISCARDED, False)
    assert await claimed(store) == []


async def test_prune(store):
    """LG-11: `prune` deletes old finished operations with their attempts, and failed ones only on request."""
    ids = await submitted(store, 1, 2, 3)
    first, second, _ = await claimed(store, 3)
    await recording.record_ends(store, [AttemptReport(first.id, first.lease_token, STEPS)])
    await failed(store, second, failure=FailedAttempt("INTERNAL"))

    assert await manual.prune(store, 60.0, [OperationState.SUCCEEDED], 10) == 0
    assert await manual.prune(store, 0.0, [OperationState.SUCCEEDED, OperationState.DISCARDED], 10) == 1
    assert [operation.id for operation in await queries.find(store, Filter(), 10)] == ids[1:]
    assert await queries.attempts(store, ids[0]) == []
    assert await manual.prune(store, 0.0, [OperationState.FAILED], 10) == 1


async def test_what_pruning_looks_at(store, url):
    """LG-11: pruning finds the operations to delete through an index of finished operations."""
    explain, table, now = (
        ("EXPLAIN", "grpc_backoff.operations", "now()")
        if "://" in url
        else ("EXPLAIN QUERY PLAN", "ledger_operations", 0)
    )
    which = f"NOT open AND state IN ('succeeded', 'discarded') AND finished <= {now}"
    with connected(url) as connection:
        if "://" in url:
            connection.execute("SET enable_seqscan = off")
        rows = connection.execute(f"{explain} SELECT seq FROM {table} WHERE {which}").fetchall()

    assert "operations_finished" in str(rows)
