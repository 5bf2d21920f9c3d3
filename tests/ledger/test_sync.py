"""The ledger for threads, with real servers, real connections and both databases."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import psycopg
import pytest
from psycopg.pq import TransactionStatus

from grpc_backoff import aio, insecure_channel
from grpc_backoff.ledger import Filter, LedgerHooks, LedgerUnavailableError, OperationState
from grpc_backoff.ledger import ledger as core
from grpc_backoff.ledger.sync import Ledger
from tests.both_apis.loops import on_a_thread
from tests.echo import EchoStub, Message, serving
from tests.ledger.delivery.test_delivery import FAST
from tests.ledger.shop import Shop

METHOD = "/shop.Orders/Place"


@pytest.fixture
def ledger(url):
    with Ledger.open(url, settings=FAST) as opened:
        yield opened


@contextlib.contextmanager
def shopping():
    """Run a server on a loop of its own and yield it."""
    shop = Shop()
    with on_a_thread(serving(shop)) as (port, _):
        shop.target = f"127.0.0.1:{port}"
        yield shop


@contextlib.contextmanager
def delivering(ledger, shop):
    thread = threading.Thread(target=ledger.deliver, args=(lambda: aio.insecure_channel(shop.target),))
    thread.start()
    try:
        yield
    finally:
        ledger.close()
        thread.join(20)
        assert not thread.is_alive()


def until(ledger, id_, state):
    for _ in range(500):
        operation = ledger.get(id_)
        if operation.state is state:
            return operation
        time.sleep(0.02)
    raise AssertionError(operation)


def connected(url):
    return psycopg.connect(url) if "://" in url else sqlite3.connect(url)


def test_threads_share_a_ledger(ledger):
    """LG-9: twenty threads submit to one ledger at the same time, and every operation is stored."""
    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda n: ledger.submit("t", METHOD, b"x", idempotency_key=str(n)), range(180)))

    assert all(each.new for each in told)
    assert {each.id for each in ledger.find(Filter(), limit=1000)} == {each.id for each in told}


@pytest.mark.parametrize("committed", [True, False])
def test_within_a_transaction(ledger, url, committed):
    """LG-9: an operation submitted within the caller's transaction is stored if that commits, and only then."""
    with contextlib.closing(connected(url)) as connection:
        told = ledger.submit("t", METHOD, b"x", within=connection)
        (connection.commit if committed else connection.rollback)()

    assert [each.id for each in ledger.find()] == [told.id][: int(committed)]


def test_interrupted_within_a_transaction(postgres_url):
    """LG-9: after Ctrl-C, nothing goes on using the caller's connection; it can be rolled back and used again."""
    with (
        Ledger.open(postgres_url) as ledger,
        psycopg.connect(postgres_url) as mine,
        psycopg.connect(postgres_url) as other,
    ):
        ledger.submit("t", METHOD, b"a", order_key="k", within=other)  # which locks the key
        threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            ledger.submit("t", METHOD, b"b", order_key="k", within=mine)
        status = mine.info.transaction_status
        other.rollback()
        mine.rollback()

        assert status is TransactionStatus.INERROR
        assert ledger.find() == []


def test_a_connection_of_another_loop(postgres_url):
    """LG-9: an asynchronous connection, which belongs to a loop, is refused."""

    async def submit(ledger):
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            ledger.submit("t", METHOD, b"x", within=connection)

    with Ledger.open(postgres_url) as ledger, pytest.raises(TypeError, match="expected a connection that blocks"):
        asyncio.run(submit(ledger))


def test_from_a_blocking_stub_to_success(url):
    """LG-9, LG-10: a stub of a threaded channel submits, and a thread delivers until the ledger is closed."""
    with shopping() as shop, insecure_channel(shop.target) as channel:
        ledger = Ledger.open(url, settings=FAST)
        with delivering(ledger, shop):
            told = ledger.submit(EchoStub(channel).Unary, Message(text="a"))
            until(ledger, told.id, OperationState.SUCCEEDED)
            attempts = ledger.attempts(told.id)

    assert shop.executed == {"a": 1}
    assert [attempt.code for attempt in attempts] == ["OK"]


def test_a_hook_calls_the_ledger(url):
    """LG-8: a hook that blocks may call the ledger, here to resolve a conflict with another request."""
    with shopping() as shop, insecure_channel(shop.target) as channel:
        shop.script["a"] = [grpc.StatusCode.ABORTED]
        better = Message(text="b").SerializeToString()
        hooks = LedgerHooks(on_conflict=lambda operation: ledger.resolve(operation.id, request=better))
        ledger = Ledger.open(url, settings=FAST, hooks=hooks)
        with delivering(ledger, shop):
            told = ledger.submit(EchoStub(channel).Unary, Message(text="a"))
            until(ledger, told.id, OperationState.SUCCEEDED)

    assert shop.executed == {"a": 1, "b": 1}


def test_a_hook_that_is_an_object(url):
    """LG-7: a hook may be an object whose class has `async def __call__`; it is awaited."""
    seen = []

    class Notify:
        async def __call__(self, operation):
            seen.append(operation.code)

    with Ledger.open(url, settings=FAST, hooks=LedgerHooks(on_exhausted=Notify())) as ledger:
        ledger.record_failure(ledger.submit("t", METHOD, b"x").id, "INVALID_ARGUMENT")

    assert seen == ["INVALID_ARGUMENT"]


def test_a_listener_that_calls_the_ledger(url):
    """LG-7: a listener that calls the ledger, and would wait for itself, gets an error instead of a deadlock."""
    raised = []

    def listen(event):
        try:
            ledger.get(event.operation_id)
        except RuntimeError as error:
            raised.append(error)

    with Ledger.open(url, settings=FAST, listeners=[listen]) as ledger:
        ledger.record_success(ledger.submit("t", METHOD, b"x").id)

    assert "would wait for itself" in str(raised[0])


def test_failed_operations_are_replayed(ledger):
    """LG-7: an operation that failed is replayed, and a closed ledger says that it is closed."""
    id_ = ledger.submit("t", METHOD, b"x").id
    ledger.record_failure(id_, "INVALID_ARGUMENT")
    assert ledger.replay(id_) == [id_]
    assert ledger.get(id_).state is OperationState.PENDING

    ledger.close()
    ledger.close()
    with pytest.raises(LedgerUnavailableError, match="the ledger is closed"):
        ledger.find()


def test_opening_fails(tmp_path):
    """LG-9: if the database cannot be opened, the ledger's thread ends."""
    before = set(threading.enumerate())
    with pytest.raises(LedgerUnavailableError):
        Ledger.open(tmp_path / "nowhere" / "ledger.db")
    new = set(threading.enumerate()) - before  # of other tests, perhaps
    assert "grpc-backoff-ledger" not in {thread.name for thread in new}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child(tmp_path):
    """LG-9: the child of a fork, which has no such thread, gets an error instead of waiting forever."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        child = os.fork()
        if not child:
            try:
                ledger.find()
            except LedgerUnavailableError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_same_methods():
    """LG-7: the ledger for threads has every public method of the asynchronous one, except `pages` and its insides."""
    names = {name for name in dir(core.Ledger) if not name.startswith("_") and callable(getattr(core.Ledger, name))}
    assert names - {"make_room", "pages"} <= set(vars(Ledger))


def test_threads_close_at_once(tmp_path):
    """LG-9: a ledger that many threads close at the same time is closed once, and none of them gets an error."""
    with ThreadPoolExecutor(10) as threads:
        for number in range(20):
            ledger = Ledger.open(tmp_path / f"{number}.db")
            list(threads.map(lambda close: close(), [ledger.close] * 10))
