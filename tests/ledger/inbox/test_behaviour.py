"""What an inbox does for servers of both APIs, on both databases."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.ledger import LedgerSchemaError
from grpc_backoff.ledger.inbox import handling
from tests.echo import Message
from tests.ledger.inbox import servers
from tests.ledger.inbox.servers import Abort, Sql, holding, once

Code = grpc.StatusCode


def test_a_repeat_gets_the_recorded_response(shop):
    """IB-1: the handler runs once for a key, and a repeat gets the same response."""
    first = shop.call()

    assert [shop.call(), shop.call()] == [first, first]
    assert (shop.effects(), shop.recorded(), shop.service.begun["a"]) == (["a"], 1, 1)


def test_other_keys_are_other_calls(shop):
    """IB-1: another key is another call, even if the request is the same."""
    assert shop.call("1") != shop.call("2")
    assert shop.effects() == ["a", "a"]


def test_the_record_outlives_the_server(api, url):
    """IB-1: a repeat is answered from the record, also by another process that opens the database later."""
    with servers.shop(api, url) as shop:
        first = shop.call()
    with servers.shop(api, url) as shop:
        assert shop.call() == first
        assert shop.effects() == ["a"]


def test_twenty_at_once(shop):
    """IB-2: of twenty concurrent calls with one key, one is executed; the others wait and get its response."""

    def slowly(text, context):
        yield 0.3
        return (yield from once(text, context))

    shop.service.handler = slowly
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: shop.call(), range(20)))

    assert len(set(answers)) == 1
    assert shop.effects() == ["a"]
    assert shop.service.begun["a"] == 1


def test_two_servers_share_a_database(api, url):
    """IB-2: a repeat that reaches another server waits for the first call, too."""
    with servers.shop(api, url) as one, servers.shop(api, url) as other, ThreadPoolExecutor(1) as pool:
        with holding(one) as first:
            second = pool.submit(other.call)
            time.sleep(0.8)  # longer than one slice of waiting; a slow machine only shortens the wait that is tested
            assert not second.done()

        assert first.result(20) == second.result(20)
        assert other.service.begun["a"] == 0
        assert one.effects() == ["a"]


@pytest.mark.parametrize("how", ["raises", "aborts", "sets a code"])
def test_a_failure_is_rolled_back(shop, how):
    """IB-3: if the handler fails, its effects are rolled back, nothing is recorded, and a repeat executes it again."""

    def fails(text, context):
        yield from once(text, context)
        if how == "raises":
            raise RuntimeError
        if how == "aborts":
            yield Abort(Code.NOT_FOUND)
        context.set_code(Code.NOT_FOUND)
        context.set_details("as scripted")
        return text

    shop.service.handler = fails
    error = shop.refused()

    assert error.code() == (Code.UNKNOWN if how == "raises" else Code.NOT_FOUND)
    assert (shop.effects(), shop.recorded()) == ([], 0)

    shop.service.handler = once
    assert shop.call().startswith("a ")
    assert shop.effects() == ["a"]


def test_a_waiting_repeat_takes_over_after_a_failure(shop):
    """IB-3: when the first call fails, a repeat that waited for it is executed."""

    def fails(text, context):
        yield Abort(Code.ABORTED)

    with ThreadPoolExecutor(1) as pool:
        with holding(shop, shop.refused, after=fails) as first:
            second = pool.submit(shop.call)
            time.sleep(0.1)
            shop.service.handler = once

        assert first.result(20).code() is Code.ABORTED
        assert second.result(20).startswith("a ")
    assert shop.effects() == ["a"]


def test_another_request_with_the_same_key(shop):
    """IB-4: the same key with another request is ALREADY_EXISTS and is not executed."""
    shop.call("k", "a")
    error = shop.refused("k", "b")

    assert error.code() is Code.ALREADY_EXISTS
    assert error.details() == "another request has the same idempotency-key"
    assert shop.effects() == ["a"]


def test_scope(opening):
    """IB-4: the same key of two callers is two keys, if the scope function says so."""
    shop = opening(scope=lambda context: dict(context.invocation_metadata()).get("tenant", ""))

    for tenant, text in [("one", "a"), ("two", "b"), ("one", "a")]:
        assert shop.call("k", text, metadata=[("tenant", tenant)]).startswith(text)
    assert shop.effects() == ["a", "b"]


def test_a_scope_that_is_no_string(opening):
    """IB-4: a scope function that returns no string is an error of the server, and the call is not executed."""
    shop = opening(scope=lambda context: None)

    assert shop.refused().code() is Code.UNKNOWN
    assert shop.service.begun["a"] == 0


def test_without_a_key(shop):
    """IB-5: a call without a key passes through and has no connection."""

    def plain(text, context):
        return text
        yield

    shop.service.handler = plain
    assert shop.call(None) == "a"
    shop.service.handler = once
    error = shop.refused(None)
    assert error.code() is Code.UNKNOWN
    assert "no idempotency key" in error.details()
    assert shop.recorded() == 0


@pytest.mark.parametrize("required", [True, ["/echo.v1.Echo/Unary"]])
def test_a_key_may_be_required(opening, required):
    """IB-5: with `required`, a call without a key is INVALID_ARGUMENT; streams pass."""
    shop = opening(required=required)

    error = shop.refused(None)
    assert (error.code(), error.details()) == (Code.INVALID_ARGUMENT, "expected the metadata idempotency-key")
    assert shop.effects() == []
    assert shop.call("k").startswith("a ")
    assert [each.text for each in shop.stub.Down(Message(text="b", count=1))] == ["b"]


def test_streams_with_a_key(shop):
    """IB-5: a stream with a key is UNIMPLEMENTED, because it would be executed again."""
    sent = [("idempotency-key", "k")]
    for call, request in (("Down", Message()), ("Up", iter([Message()])), ("Both", iter([Message()]))):
        with pytest.raises(grpc.RpcError) as caught:
            list(getattr(shop.stub, call)(request, metadata=sent))
        assert caught.value.code() is Code.UNIMPLEMENTED


def test_a_request_that_cannot_be_read(shop):
    """IB-5: a request that is no message is INTERNAL, as on a server without an inbox."""
    call = shop.channel.unary_unary("/echo.v1.Echo/Unary")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff\xff", metadata=[("idempotency-key", "k")], timeout=20)

    assert caught.value.code() is Code.INTERNAL
    assert shop.recorded() == 0


def test_a_deadline_passes_while_a_repeat_waits(shop):
    """IB-2: a repeat whose deadline passes while it waits ends, and the first call is unharmed."""
    with holding(shop) as first:
        assert shop.refused(timeout=0.3).code() is Code.DEADLINE_EXCEEDED
        cancelled = shop.future()
        time.sleep(0.1)
        cancelled.cancel()

    assert shop.call() == first.result(20)
    assert shop.effects() == ["a"]


def test_a_repeat_waits_for_hold_at_most(opening):
    """IB-2: after `hold`, a waiting repeat is UNAVAILABLE, so that the client repeats it later."""
    shop = opening(hold=0.2)
    with holding(shop) as first:
        error = shop.refused()

    assert error.code() is Code.UNAVAILABLE
    assert shop.call() == first.result(20)
    assert shop.effects() == ["a"]


def test_a_client_cancels_while_the_handler_runs(shop):
    """IB-3: a cancelled call is executed to its end or rolled back; either way, the repeat leaves one effect."""
    reached = threading.Event()

    def slowly(text, context):
        yield from once(text, context)
        reached.set()
        yield 0.3
        return text

    shop.service.handler = slowly
    call = shop.future()
    assert reached.wait(20)
    call.cancel()

    assert shop.call().startswith("a")
    assert shop.effects() == ["a"]


def test_the_handler_cannot_commit_half_of_it(shop):
    """IB-6: what a handler does after it has ended the transaction itself is never answered as if it were recorded."""

    def commits(text, context):
        yield from once(text, context)
        yield Sql("ROLLBACK")
        return text

    shop.service.handler = commits
    assert shop.refused().code() in (Code.INTERNAL, Code.UNKNOWN)
    assert shop.effects() == []

    shop.service.handler = once
    shop.call()
    assert shop.effects() == ["a"]


def test_a_statement_that_fails_unnoticed(shop):
    """IB-6: if a handler hides an error of the database, it answers OK only if its transaction can be committed."""

    def hides(text, context):
        yield from once(text, context)
        with contextlib.suppress(*servers.DATABASES):
            yield Sql("INSERT INTO missing VALUES (1)")
        return text

    shop.service.handler = hides
    if shop.url.startswith("postgresql:"):  # the error ends the transaction
        assert shop.refused().code() is Code.INTERNAL
        assert (shop.effects(), shop.recorded()) == ([], 0)
    else:  # it undoes only the statement
        assert shop.call() == "a"
        assert (shop.effects(), shop.recorded()) == (["a"], 1)


def test_prune(shop):
    """IB-7: records older than the given time are deleted, and only these; a repeat is then executed again."""
    first = shop.call()

    assert shop.place.do(shop.inbox.prune(3600)) == 0
    assert shop.call() == first
    time.sleep(0.05)
    assert shop.place.do(shop.inbox.prune(0.01)) == 1
    assert shop.call() != first
    assert shop.effects() == ["a", "a"]


def test_prune_refuses_what_is_no_time(shop):
    """IB-7: a time that is negative or no number is an error, and nothing is deleted."""
    shop.call()

    for older_than in (-1.0, float("nan"), "a week"):
        with pytest.raises(OptionError, match=r"older_than=.*: expected "):
            shop.place.do(shop.inbox.prune(older_than))
    assert shop.recorded() == 1


def test_a_newer_table(place, url):
    """LG-13: a table that a newer version has upgraded is rejected, and so is a missing one without `migrate`."""
    with pytest.raises(LedgerSchemaError, match="open it with migrate=True"):
        place.open(url, migrate=False)
    place.do(place.open(url).close())
    place.do(place.open(url, migrate=False).close())
    table = "grpc_backoff.inbox_schema" if url.startswith("postgresql:") else "ledger_inbox_schema"
    servers.query(url, f"UPDATE {table} SET version = 99")
    with pytest.raises(LedgerSchemaError, match="a newer grpc-backoff has upgraded the tables to version 99"):
        place.open(url)


@pytest.mark.parametrize(
    "how",
    [
        {"required": "/echo.v1.Echo/Unary"},
        {"required": 1},
        {"scope": "tenant"},
        {"hold": -1.0},
        {"connections": 0},
        {"connections": True},
    ],
)
def test_invalid_options(place, how):
    """IB-5: an invalid option is an error that says what is expected."""
    with pytest.raises(OptionError, match=f"{next(iter(how))}=.*: expected "):
        place.open("unused.db", **how)


def test_nothing_secret_is_logged(shop, caplog):
    """LG-11: no log record contains a request, a response or a key."""
    caplog.set_level(logging.DEBUG, "grpc_backoff")

    def deadlocks(text, context):
        yield Sql("INSERT INTO missing VALUES ({})", (text,))

    shop.service.handler = deadlocks
    shop.refused("secret-key", "secret-request")
    shop.refused(None, metadata=[("idempotency-key", "secret-key" * 200)])

    assert not [each for each in caplog.records if each.name == "grpc_backoff" and "secret" in each.getMessage()]


def test_the_child_of_a_fork(shop, monkeypatch):
    """IB-6: the child of a fork leaves the parent's connections alone: it refuses calls with a key and closes nothing.

    The server is in one process here, which pretends to be a child of itself.
    """
    first = shop.call("before")
    with monkeypatch.context() as child:
        child.setattr(handling.os, "getpid", lambda: -1)
        refused = shop.refused("within")
        shop.place.do(shop.inbox.close())

    assert (refused.code(), "opened before a fork" in refused.details()) == (Code.UNAVAILABLE, True)
    assert (shop.call("before"), shop.effects()) == (first, ["a"])
