"""The pure decisions of an inbox, without a database."""

from __future__ import annotations

import hashlib

import pytest

from grpc_backoff.ledger.inbox.decision import (
    HANDLE,
    InboxEntry,
    InboxStage,
    NotRecorded,
    Query,
    Refused,
    Statements,
    Trouble,
    read_key,
)

SQL = Statements("inbox", "?", "?", "SELECT 1")
IDENTITY = ("caller", "/shop.Orders/Place", "k")
DIGEST = hashlib.sha256(b"order").digest()


@pytest.fixture
def entry():
    return InboxEntry(SQL, *IDENTITY, b"order")


def refusal_of(steps, answer):
    with pytest.raises(Refused) as caught:
        steps.send(answer)
    return caught.value


def returned(steps, answer):
    with pytest.raises(StopIteration) as ended:
        steps.send(answer)
    return ended.value.value


def test_a_new_key_is_executed(entry):
    """IB-1: a claimed key is handled, and the response is stored before the transaction ends."""
    steps = entry.steps()

    assert next(steps) == Query(SQL.claim, (*IDENTITY, DIGEST))
    assert entry.stage is InboxStage.CLAIMING
    assert steps.send([(1,)]) == Query(SQL.claimed)
    assert steps.send([(None,)]) is HANDLE
    assert entry.stage is InboxStage.HANDLING
    assert steps.send(b"receipt") == Query(SQL.finish, (b"receipt", *IDENTITY))
    assert entry.stage is InboxStage.RECORDING
    assert returned(steps, [(1,)]) == b"receipt"


def test_a_repeat_is_answered(entry):
    """IB-1: a key that is taken is answered with its response."""
    steps = entry.steps()
    next(steps)

    assert steps.send([]) == Query(SQL.find, IDENTITY)
    assert returned(steps, [(DIGEST, b"receipt")]) == b"receipt"


def test_an_empty_response_is_a_response(entry):
    """IB-1: an empty message, which serializes to no bytes, is recorded like any other."""
    steps = entry.steps()
    next(steps)
    steps.send([])

    assert returned(steps, [(DIGEST, b"")]) == b""


def test_a_row_that_was_pruned_is_claimed_again(entry):
    """IB-7: if the row disappears between the claim and the look-up, the call claims again."""
    steps = entry.steps()
    claim = next(steps)
    steps.send([])

    assert steps.send([]) == claim


def test_another_request_is_a_conflict(entry):
    """IB-4: a digest that differs is ALREADY_EXISTS, even if the first call's response is unknown."""
    for response in (b"receipt", None):
        steps = entry.steps()
        next(steps)
        steps.send([])
        assert refusal_of(steps, [(b"other", response)]).code == "ALREADY_EXISTS"


def test_a_row_without_a_response(entry):
    """IB-6: a row without a response was committed by the handler itself, so the call is never executed again."""
    steps = entry.steps()
    next(steps)
    steps.send([])

    assert refusal_of(steps, [(DIGEST, None)]).code == "INTERNAL"


def test_a_row_that_is_gone_at_the_end(entry):
    """IB-6: a handler that rolled back by itself is INTERNAL."""
    steps = entry.steps()
    for answer in (None, [(1,)], [(None,)], b"receipt"):
        steps.send(answer)

    assert refusal_of(steps, []).code == "INTERNAL"


def test_an_error_status_is_not_recorded(entry):
    """IB-3: an error status ends the transaction without a record."""
    steps = entry.steps()
    for answer in (None, [(1,)], [(None,)]):
        steps.send(answer)

    with pytest.raises(NotRecorded):
        steps.send(None)


@pytest.mark.parametrize(
    ("stage", "trouble", "late", "expected"),
    [
        (InboxStage.CLAIMING, Trouble.BUSY, False, None),
        (InboxStage.CLAIMING, Trouble.BUSY, True, "UNAVAILABLE"),
        (InboxStage.CLAIMING, Trouble.UNAVAILABLE, False, "UNAVAILABLE"),
        (InboxStage.CLAIMING, Trouble.READ_ONLY, False, "UNAVAILABLE"),
        (InboxStage.CLAIMING, Trouble.OTHER, False, "INTERNAL"),
        (InboxStage.HANDLING, Trouble.BUSY, False, "UNAVAILABLE"),
        (InboxStage.HANDLING, Trouble.UNAVAILABLE, True, "UNAVAILABLE"),
        (InboxStage.HANDLING, Trouble.OTHER, False, "own"),
        (InboxStage.RECORDING, Trouble.BUSY, False, "UNAVAILABLE"),
        (InboxStage.RECORDING, Trouble.UNAVAILABLE, False, "UNAVAILABLE"),
        (InboxStage.RECORDING, Trouble.OTHER, True, "INTERNAL"),
    ],
)
def test_after_an_error(entry, stage, trouble, late, expected):
    """IB-6: what a repeat can mend is UNAVAILABLE, what it cannot is INTERNAL, and the handler keeps its own errors."""
    entry.stage = stage
    error = OSError()
    following = entry.after(error, trouble, late=late)

    found = following.code if isinstance(following, Refused) else following
    assert found == (error if expected == "own" else expected)


@pytest.mark.parametrize(
    ("metadata", "required", "expected"),
    [
        ((), False, None),
        ((), ["/other/Method"], None),
        ((), True, "INVALID_ARGUMENT"),
        ((), [IDENTITY[1]], "INVALID_ARGUMENT"),
        ((("idempotency-key", "k"),), False, "k"),
        ((("a", "b"), ("idempotency-key", "k")), True, "k"),
        ((("idempotency-key", "k"), ("idempotency-key", "k")), False, "INVALID_ARGUMENT"),
        ((("idempotency-key", ""),), False, "INVALID_ARGUMENT"),
        ((("idempotency-key", "k" * 1024),), False, "k" * 1024),
        ((("idempotency-key", "k" * 1025),), False, "INVALID_ARGUMENT"),
        ((("idempotency-key", "\x00"),), False, "INVALID_ARGUMENT"),
        ((("idempotency-key", "é"),), False, "INVALID_ARGUMENT"),
        ((("idempotency-key", b"k"),), False, "INVALID_ARGUMENT"),
    ],
)
def test_read_key(metadata, required, expected):
    """IB-5: a call has one printable key of up to 1,024 characters, or none if none is required."""
    read = read_key(metadata, IDENTITY[1], required)

    assert (read.code if isinstance(read, Refused) else read) == expected
