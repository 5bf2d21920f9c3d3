"""Rows that cannot be read, on every store."""

from __future__ import annotations

import pytest

from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.transactions import claiming, counting, queries, recording
from tests.ledger.conftest import execute
from tests.ledger.steps import SHOP, STEPS, claimed, policy_of, submitted

BAD = [
    ("request", "'text'", "sqlite"),
    ("next_attempt_at", "'soon'", "sqlite"),
    ("created", "'then'", "sqlite"),
    ("attempts", "'many'", "sqlite"),
    ("state", "'lost'", "both"),
    ("metadata", "'{{'", "both"),
    ("next_attempt_at", "'infinity'", "postgres"),
    ("next_attempt_at", "'-infinity'", "postgres"),
    ("next_attempt_at", "-9e999", "sqlite"),
    ("backoff_request_seconds", "'NaN'", "postgres"),
]


@pytest.mark.parametrize(("column", "value", "where"), BAD)
async def test_one_bad_row(store, url, column, value, where):
    """LG-10: a row that cannot be read is shown as such, and never stops what is done with the others."""
    if where not in ("both", "postgres" if "://" in url else "sqlite"):
        return
    bad, good = await submitted(store, 1, 2)
    execute(url, "UPDATE {} SET state = 'waiting_for_retry', last_attempted_at = created WHERE id = {}", bad)
    execute(url, f"UPDATE {{}} SET {column} = {value} WHERE id = {{}}", bad)

    found = {each.id: each for each in await queries.find(store, Filter(), 10)}
    ready = {each.id: each for each in await queries.ready(store, Filter(), 10, policy_of)}
    due, queue = await claiming.next_due(store, SHOP), await counting.queue(store, None)
    taken = [each for each in await claimed(store, 10) if each.id == good]
    told = await recording.record_ends(store, [AttemptReport(each.id, each.lease_token, STEPS) for each in taken])

    assert found[good].problem is None
    assert ready[good].ready
    assert column in found[bad].problem or "OperationState" in found[bad].problem
    assert due == 0
    assert queue.length >= 1
    assert [each.state for each in told] == [OperationState.SUCCEEDED]
