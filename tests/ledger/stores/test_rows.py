"""Rows that cannot be read, on every store, and metadata in a row, which errors do not show."""

from __future__ import annotations

import json

import pytest

from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import AttemptReport, Filter
from grpc_backoff.ledger.stores.rows import decode_metadata, encode_metadata, unsendable
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


def test_metadata_as_text():
    """LG-1: metadata can be stored as text and read back, including binary values."""
    metadata = (("a", "some text"), ("b-bin", b"\x00\xff"))

    assert decode_metadata(encode_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    ("key", "sent", "unsent"),
    [
        ("x", ["", "a b~"], [b"raw", "\xe9", "a\n", "a\x7f", 7]),
        ("x-bin", [b"", b"\x00\n"], ["abc", None]),
        *((key, [], ["a"]) for key in (7, "", "X", "x y", "x\n", "\xe9", b"x")),
    ],
)
def test_what_grpc_sends(key, sent, unsent):
    """LG-11: metadata needs legal keys, bytes for those that end with -bin and printable ASCII for others."""
    assert [unsendable(key, value) for value in sent] == [None] * len(sent)
    assert None not in [unsendable(key, value) for value in unsent]


@pytest.mark.parametrize(
    "text",
    ["secret", "7", '{"secret": 1}', '["secret"]', '[["x-bin", "secret!"]]', json.dumps([["x", "secret\n"]]), "null"],
)
def test_text_that_is_no_metadata(text):
    """LG-11: any invalid metadata in a row raises a ValueError whose message does not show the metadata."""
    with pytest.raises(ValueError, match=r"metadata.*expected") as caught:
        decode_metadata(text)

    assert "secret" not in str(caught.value)
