"""Submitting on every store: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3
import time
from functools import partial

import psycopg
import pytest

from grpc_backoff import OptionError
from grpc_backoff.ledger import Ledger, LedgerStateError
from grpc_backoff.ledger.operation import OperationState
from grpc_backoff.ledger.records import Filter
from grpc_backoff.ledger.transactions import claiming, manual, queries, submitting
from tests.ledger.conftest import connected, submission
from tests.ledger.steps import SHOP, claimed, did, one, policy_of, submitted


async def test_a_row_has_every_field(store):
    """LG-1: a submitted operation is stored with every field, pending and without attempts."""
    metadata = (("x-tenant", "a"), ("x-trace-bin", b"\x00\xff"))
    [told] = await submitting.submit(store, [submission(1, metadata=metadata, trace_id="t" * 32, key="k")])
    operation = await one(store, told.id)

    assert told.new
    assert (operation.target, operation.method, operation.request) == (SHOP, "/shop.Orders/Place", b"order")
    assert (operation.metadata, operation.policy, operation.state) == (metadata, "steps", OperationState.PENDING)
    assert (operation.attempts, operation.recorded, operation.lease_token) == (0, 0, 0)
    assert (operation.idempotency_key, operation.trace_id) == ("k", "t" * 32)
    assert operation.created == operation.began == operation.next_attempt_at
    nothing = (
        "backoff_request_seconds",
        "last_attempted_at",
        "code",
        "details",
        "lease_owner",
        "lease_until",
        "finished",
    )
    assert [getattr(operation, name) for name in nothing] == [None] * len(nothing)
    assert "b'order'" not in repr(operation)


async def test_one_key_is_one_operation(store):
    """LG-1: a second submit with the same key and method returns the first operation; each method has its own keys."""
    first = await submitting.submit(store, [submission(1, key="k")])
    again = await submitting.submit(
        store, [submission(2, key="k"), submission(3, key="k", method="/shop.Orders/Cancel")]
    )
    both = await submitting.submit(store, [submission(4, key="n"), submission(5, key="n")])

    assert (again[0].id, again[0].new) == (first[0].id, False)
    assert again[1].new
    assert (both[0].new, both[1].new, both[0].id) == (True, False, both[1].id)


@pytest.mark.parametrize("order_key", [None, "o"])
async def test_a_statement_with_a_known_key(url, order_key):
    """LG-9: the SQL of `statement` stores a request with a known key once, and raises for another request."""
    async with await Ledger.open(url) as ledger:

        def prepared(request, **how):
            return ledger.prepared("t", "/m/m", request, idempotency_key="k", order_key=order_key, **how)

        def run(submission):
            with connected(url) as connection:
                connection.execute(*ledger.statement(submission))

        first = prepared(b"a")
        for each in (first, first, prepared(b"a")):
            run(each)
        with pytest.raises((psycopg.DataError, sqlite3.IntegrityError), match=r"idempotency key|NOT NULL"):
            run(prepared(b"b"))
        run(prepared(b"b")._replace(method="/m/n"))
        await ledger.retarget("t", "u")
        run(first)

        assert [(each.method, each.request) for each in await ledger.find()] == [("/m/m", b"a"), ("/m/n", b"b")]


async def test_what_is_submitted_again(store):
    """LG-9: submitting the same operation again stores it once, even without a key."""
    first = submission(1)
    await submitting.submit(store, [first])
    [again, other, twice] = await submitting.submit(store, [first, submission(2), submission(2)])

    assert (again.id, again.new) == (first.id, False)
    assert (other.new, twice.new, twice.id) == (True, False, other.id)
    assert len(await queries.find(store, Filter(), 10)) == 2


async def test_many_operations_at_once(store):
    """LG-7, LG-9: thousands of operations are submitted, and discarded, in one transaction each."""
    number = 3500  # more than fit into one statement of SQLite
    ids = await submitted(store, *range(number))
    again = await submitting.submit(store, [submission(each) for each in range(number)])

    assert [told.id for told in again] == ids
    assert not any(told.new for told in again)
    assert len(await manual.discard(store, ids)) == number


async def test_not_before(store):
    """LG-9: an operation is not claimed before the time that was given with it."""
    [told] = await submitting.submit(store, [submission(1, not_before=time.time() + 60)])
    await submitted(store, 2, not_before=1.0)

    assert [each.id for each in await claimed(store, 10)] == [submission(2).id]
    assert 50 < await claiming.next_due(store, SHOP) <= 60
    assert (await queries.ready(store, Filter(ids=(told.id,)), 1, policy_of))[0].ready is False


def from_sqlite3(url, *, odd=False, autocommit=False):
    connection = sqlite3.connect(url, **({"isolation_level": None} if autocommit else {}))
    if odd:
        connection.row_factory = lambda cursor, row: dict(
            zip([part[0] for part in cursor.description], row, strict=True)
        )
    return connection


def from_psycopg(kind, raw, url, *, odd=False, autocommit=False):
    how = {"row_factory": psycopg.rows.dict_row, "cursor_factory": raw} if odd else {}
    return kind.connect(url, autocommit=autocommit, **how)


DRIVERS = {
    "sqlite3": from_sqlite3,
    "psycopg": partial(from_psycopg, psycopg.Connection, psycopg.RawCursor),
    "psycopg, async": partial(from_psycopg, psycopg.AsyncConnection, psycopg.AsyncRawCursor),
}


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def database(driver, request, tmp_path):
    """A function that returns the URL of a new database for the driver."""
    if driver == "sqlite3":
        return lambda name="ledger": str(tmp_path / f"{name}.db")
    own, server = request.getfixturevalue("postgres_url"), request.getfixturevalue("server")
    return lambda name=None: server.database() if name else own


@pytest.fixture
async def connecting(driver, database):
    """A ledger and a function that returns a driver's connection to its database, or to another one."""
    url, made = database(), []

    async def connect(to=url, **how):
        made.append(await did(DRIVERS[driver](to, **how)))
        return made[-1]

    async with await Ledger.open(url) as ledger:
        yield ledger, connect
        for each in made:
            await did(each.close())


@pytest.mark.parametrize("odd", [False, True])
async def test_in_the_callers_transaction(connecting, odd):
    """LG-9: an operation in the caller's transaction is stored on commit and dropped on rollback.

    The connection may have any row factory and any class of cursors.
    """
    ledger, connect = connecting
    mine = await connect(odd=odd)
    kept = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
    again = await ledger.submit("t", "/m/m", b"a", idempotency_key="k", within=mine)
    assert await ledger.find() == []
    await did(mine.commit())
    await ledger.submit("t", "/m/m", b"b", within=mine)
    await did(mine.rollback())

    assert [operation.id for operation in await ledger.find()] == [kept.id]
    assert (again.id, again.new) == (kept.id, False)
    with pytest.raises(TypeError, match=r"within=<object>: expected a (psycopg connection|sqlite3.Connection) for"):
        await ledger.submit("t", "/m/m", b"d", within=object())


async def test_within_autocommit(connecting):
    """LG-9: a connection in autocommit mode needs an open transaction, of which a failed submit undoes only its own."""
    ledger, connect = connecting
    mine = await connect(autocommit=True)
    with pytest.raises(OptionError, match=r"within=.*autocommit.*: expected a connection with an open tr"):
        await ledger.submit("t", "/m/m", b"a", within=mine)
    await did(mine.execute("BEGIN"))
    [kept] = await ledger.submit_many([ledger.prepared("t", "/m/m", b"a", idempotency_key="k")], within=mine)
    with pytest.raises(LedgerStateError, match="already has the idempotency key"):
        await ledger.submit_many(
            [ledger.prepared("t", "/m/m", b"c"), ledger.prepared("t", "/m/m", b"b", idempotency_key="k")], within=mine
        )
    await did(mine.execute("COMMIT"))

    assert [each.id for each in await ledger.find()] == [kept.id]


async def test_sql_for_any_driver(connecting):
    """LG-9: the statement and parameters that `statement` returns store an operation in any transaction."""
    ledger, connect = connecting
    mine = await connect()
    prepared = ledger.prepared("t", "/m/m", b"a", idempotency_key="k")
    await did(mine.execute(*ledger.statement(prepared)))
    await did(mine.commit())

    assert (await ledger.get(prepared.id)).idempotency_key == "k"


async def test_within_another_ledger(connecting, database):
    """LG-9: a connection to the database of another ledger is refused, and its transaction goes on."""
    ledger, connect = connecting
    another = database("another")
    async with await Ledger.open(another) as other:
        mine = await connect(another)
        allowed = "a connection to (postgresql://|the ledger's own file)"
        with pytest.raises(OptionError, match=f"within=.*: expected {allowed}"):
            await ledger.submit("t", "/m/m", b"", within=mine)
        told = await other.submit("t", "/m/m", b"", within=mine)
        await did(mine.commit())
        assert [each.id for each in await other.find()] == [told.id]
        assert await ledger.find() == []
