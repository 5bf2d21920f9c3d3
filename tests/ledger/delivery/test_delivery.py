"""Submitting and delivering, with real servers, real channels and both databases."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import weakref
from dataclasses import replace

import grpc
import pytest

from grpc_backoff import OptionError, PolicyWarning, aio
from grpc_backoff.ledger import (
    Filter,
    Ledger,
    LedgerBusyError,
    LedgerHooks,
    LedgerUnavailableError,
    OperationConflicted,
    OperationDelivered,
    OperationExhausted,
    OperationRetried,
    OperationState,
)
from grpc_backoff.ledger.delivery.announcing import event_of
from grpc_backoff.ledger.delivery.state import DeliveryState
from grpc_backoff.ledger.transactions import claiming, queries, recording
from tests.echo import EchoStub, Message, serving
from tests.ledger.conftest import SETTINGS, dump, execute
from tests.ledger.shop import Shop
from tests.ledger.steps import eventually, expired

S = grpc.StatusCode
QUICK = "max_attempts: 3, delay: 20ms"
PATIENT = "max_attempts: unlimited, deadline: 1d, delay: 20ms, codes: UNAVAILABLE RESOURCE_EXHAUSTED INTERNAL"
FAST = replace(SETTINGS, poll=0.1, lease=1.0, grace=2.0, policy=QUICK, concurrency=8)


@contextlib.asynccontextmanager
async def opened(url, settings=FAST, **how):
    async with await Ledger.open(url, settings=settings, **how) as ledger:
        yield ledger


@contextlib.asynccontextmanager
async def delivering(ledger, channel, **how):
    task = asyncio.ensure_future(ledger.deliver(channel, **how))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(ledger, id_, *states):
    """Wait up to ten seconds for the operation to reach one of these states and return it."""
    for _ in range(500):
        operation = await ledger.get(id_)
        if operation.state in states:
            return operation
        await asyncio.sleep(0.02)
    raise AssertionError(operation)


async def done(ledger, unary, text="a", state=OperationState.SUCCEEDED):
    """Submit an operation and wait until it has reached this state; return it."""
    return await until(ledger, (await ledger.submit(unary, Message(text=text))).id, state)


async def drained(ledger):
    """Wait up to ten seconds until no operation is left to deliver."""

    async def is_empty():
        return not (await ledger.queue()).length

    await eventually(is_empty)


def prepared(ledger, unary, number):
    """Return this many operations, whose requests are numbers."""
    return [ledger.prepared(unary, Message(text=str(n))) for n in range(number)]


def during_claims(monkeypatch, seconds, error=None):
    """Let claims take this many seconds, and then fail if an error is given; return the event that the first sets."""
    claim, began = claiming.claim, asyncio.Event()

    async def slow(*given, **named):
        began.set()
        await asyncio.sleep(seconds)
        if error:
            raise error
        return await claim(*given, **named)

    monkeypatch.setattr(claiming, "claim", slow)
    return began


@contextlib.asynccontextmanager
async def at_work(url, shop, settings=FAST, *, concurrency=None, through=None, **how):
    """Deliver the operations of a ledger to the shop, through a channel with these options.

    Yield the ledger and the method to submit.
    """
    async with (
        opened(url, settings, **how) as ledger,
        aio.insecure_channel(shop.target, **(through or {})) as channel,
        delivering(ledger, channel, concurrency=concurrency),
    ):
        yield ledger, method_of(channel)


def service_config(multiplier):
    policy = {
        "maxAttempts": 5,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": multiplier,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})


def method_of(channel):
    return EchoStub(channel).Unary


@pytest.fixture
async def ledger(url):
    async with opened(url) as made:
        yield made


@pytest.fixture
async def channel(shop):
    """A channel to the shop that is READY."""
    async with aio.insecure_channel(shop.target) as made:
        await made.channel_ready()
        yield made


TOO_LARGE = "grpc: received message larger than max (5266822 vs. 4194304)"


async def test_what_will_never_fit(url, shop):
    """LG-7, RT-2: a message that is too large for a server in another language is not delivered again and again."""
    shop.script["a"] = [(S.RESOURCE_EXHAUSTED, TOO_LARGE)] * 5
    async with at_work(url, shop) as (ledger, unary):
        operation = await done(ledger, unary, state=OperationState.FAILED)
    assert (operation.attempts, operation.code, operation.details) == (1, "RESOURCE_EXHAUSTED", TOO_LARGE)


async def test_what_never_ran(url, shop):
    """RT-14: a ledger's policy may repeat only what never ran."""
    shop.script["a"] = [(S.UNAVAILABLE, "no healthy upstream"), (S.UNAVAILABLE, "upstream request timeout")]
    settings = replace(FAST, policy=f"{QUICK}, never_ran_only: true")
    async with at_work(url, shop, settings) as (ledger, unary):
        operation = await done(ledger, unary, state=OperationState.FAILED)
    assert operation.attempts == 2


async def test_from_submit_to_success(url, shop):
    """LG-9, LG-10: a submitted operation is delivered with its idempotency key; `on_success` receives the response."""
    heard, events = [], []
    hooks = LedgerHooks(on_success=lambda operation, response: heard.append((operation.id, response)))
    async with at_work(url, shop, hooks=hooks, listeners=[events.append]) as (ledger, unary):
        told = await ledger.submit(unary, Message(text="a"), idempotency_key="order-1")
        operation = await until(ledger, told.id, OperationState.SUCCEEDED)
        attempts = await ledger.attempts(told.id)

    assert heard == [(told.id, Message(text="a").SerializeToString())]
    assert shop.executed == {"a": 1}
    assert shop.metadata[0]["idempotency-key"] == "order-1"
    assert (operation.attempts, [attempt.code for attempt in attempts]) == (1, ["OK"])
    assert [type(event) for event in events] == [OperationDelivered]


async def test_hooks_that_are_set_later(url, shop):
    """LG-10: hooks that are assigned to an open ledger apply to the deliveries that run."""
    heard = []
    async with at_work(url, shop) as (ledger, unary):
        ledger.hooks = replace(ledger.hooks, on_success=lambda operation, _: heard.append(operation.id))
        assert heard == [(await done(ledger, unary)).id]


async def test_without_a_key_the_id_is_sent(url, shop):
    """LG-10: every attempt sends the same `idempotency-key`, by default the operation's id; retries are numbered."""
    shop.script["a"] = [S.UNAVAILABLE]
    async with at_work(url, shop, through={"options": [("grpc.enable_retries", 0)]}) as (ledger, unary):
        operation = await done(ledger, unary)

    assert shop.keys == {operation.id: 2}
    assert [sent.get("grpc-previous-rpc-attempts") for sent in shop.metadata] == [None, "1"]


async def test_the_channels_retries_are_off(url, shop):
    """LG-10: a delivered call is retried neither by the channel's policy nor by its service config."""
    shop.script["a"] = [S.UNAVAILABLE] * 9
    retrying = service_config(1)
    for through in ({"retry": "retry: 5, delay: 10ms"}, {"options": [("grpc.service_config", retrying)]}):
        shop.executed.clear()
        async with at_work(url, shop, through=through) as (ledger, unary):
            operation = await done(ledger, unary, state=OperationState.FAILED)
        assert (operation.attempts, shop.executed["a"]) == (3, 3)


async def test_exhausted(url, shop, caplog):
    """LG-7: when the policy gives up, the hook runs, one WARNING is logged, and nothing is retried until `replay`."""
    heard, events = [], []
    shop.script["a"] = [S.UNAVAILABLE] * 3
    caplog.set_level(logging.WARNING, "grpc_backoff")
    hooks = LedgerHooks(on_exhausted=heard.append)
    async with at_work(url, shop, hooks=hooks, listeners=[events.append]) as (ledger, unary):
        operation = await done(ledger, unary, state=OperationState.FAILED)
        id_ = operation.id
        await asyncio.sleep(0.3)
        executed = shop.executed["a"]
        assert await ledger.replay(id_) == [id_]
        again = await until(ledger, id_, OperationState.SUCCEEDED)
        attempts = await ledger.attempts(id_)

    assert (operation.attempts, operation.code, operation.details, executed) == (3, "UNAVAILABLE", "as scripted", 3)
    assert [(each.id, each.state, each.code) for each in heard] == [(id_, OperationState.FAILED, "UNAVAILABLE")]
    assert [type(event) for event in events] == [OperationRetried] * 2 + [OperationExhausted, OperationDelivered]
    assert events[2].reason == "no attempts are left"
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"operation {id_}" in warning.getMessage()
    assert (warning.operation_id, warning.attempt, warning.code) == (id_, 3, "UNAVAILABLE")
    assert (again.attempts, [attempt.number for attempt in attempts]) == (1, [1, 2, 3, 4])


async def test_conflict(url, shop):
    """LG-8: a conflict calls `on_conflict` and is not retried; `resolve` can deliver it with another request."""
    heard, events = [], []
    shop.script["a"] = [S.ABORTED]
    hooks = LedgerHooks(on_conflict=heard.append)
    async with at_work(url, shop, hooks=hooks, listeners=[events.append]) as (ledger, unary):
        told = await done(ledger, unary, state=OperationState.CONFLICT)
        await ledger.resolve(told.id, request=Message(text="b").SerializeToString())
        await until(ledger, told.id, OperationState.SUCCEEDED)

    assert [operation.state for operation in heard] == [OperationState.CONFLICT]
    assert [type(event) for event in events] == [OperationConflicted, OperationDelivered]
    assert shop.executed == {"a": 1, "b": 1}


async def test_new_credentials(url, shop):
    """LG-8, RT-4, LG-11: after UNAUTHENTICATED, new credentials are fetched, used at once, and never stored."""
    shop.script["a"] = [S.UNAUTHENTICATED]
    hooks = LedgerHooks(refresh_credentials=lambda operation: [("authorization", "Bearer new")])
    async with at_work(url, shop, replace(FAST, policy="background"), hooks=hooks) as (ledger, unary):
        operation = await done(ledger, unary)
        [first, _] = await ledger.attempts(operation.id)

    assert [sent.get("authorization") for sent in shop.metadata] == [None, "Bearer new"]
    assert (first.delay, first.source) == (0.0, "refreshed credentials")
    assert operation.metadata == ()


@pytest.mark.parametrize("pair", [("authorization", "token\n"), ("Authorization", "token")])
async def test_new_credentials_that_cannot_be_sent(url, shop, pair, caplog):
    """LG-8, RT-4: what gRPC could not send is logged without its value, and renews nothing; other operations go on."""
    shop.script["a"] = [S.UNAUTHENTICATED]
    hooks = LedgerHooks(refresh_credentials=lambda operation: [pair])
    async with at_work(url, shop, replace(FAST, policy="background"), hooks=hooks) as (ledger, unary):
        failed = await done(ledger, unary, state=OperationState.FAILED)
        await until(ledger, (await ledger.submit(unary, Message(text="b"))).id, OperationState.SUCCEEDED)
        attempts = await ledger.attempts(failed.id)

    assert [attempt.code for attempt in attempts] == ["UNAUTHENTICATED"]
    assert "the hook refresh_credentials raised" in caplog.text
    assert "token" not in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "delay"),
    [
        ("grpc-retry-pushback-ms", "170", 0.17),
        ("grpc-retry-pushback-ms", "9000", 0.5),
        ("retry-after", "0", 0.0),
        ("retry-after", "9", 0.5),
    ],
)
async def test_the_servers_word(url, shop, key, value, delay):
    """LG-4: pushback or `retry-after` sets the wait, up to `max_server_delay`; the attempt records which it was."""
    shop.script["a"] = [(S.UNAVAILABLE, ((key, value),))]
    heeding = "max_attempts: 3, delay: 20ms, server_delay_jitter: 0s, max_server_delay: 500ms"
    async with at_work(url, shop, replace(FAST, policy=heeding)) as (ledger, unary):
        [first, second] = await ledger.attempts((await done(ledger, unary)).id)

    assert (first.delay, first.source) == (delay, key)
    assert second.started - first.ended >= delay - 0.001


async def test_an_attempt_without_end(url, shop):
    """LG-6, RT-7: an attempt that exceeds the policy's timeout is abandoned and retried."""
    shop.script["a"] = [30.0]
    async with at_work(url, shop, replace(FAST, policy=f"{QUICK}, timeout: 200ms")) as (ledger, unary):
        attempts = await ledger.attempts((await done(ledger, unary)).id)

    *given_up, last = [attempt.code for attempt in attempts]  # on a slow machine, a second attempt may also time out
    assert (set(given_up), last) == ({"DEADLINE_EXCEEDED"}, "OK")


async def test_want_of_a_connection_is_no_attempt(url):
    """LG-10: while the server is down, nothing is claimed and no attempt is counted; delivery starts once it is up."""
    shop = Shop()
    shop.script["*"] = [0.05] * 20
    async with serving(shop) as port:
        pass
    target = f"127.0.0.1:{port}"
    async with (
        opened(url) as ledger,
        aio.insecure_channel(target, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel,
        delivering(ledger, channel),
    ):
        ids = [(await ledger.submit(method_of(channel), Message(text=str(n)))).id for n in range(20)]
        await asyncio.sleep(0.5)
        before = await ledger.queue()
        assert not channel.connection_status().made
        async with serving(shop, port=port):
            operations = [await until(ledger, id_, OperationState.SUCCEEDED) for id_ in ids]

    assert before.counts == {OperationState.PENDING: 20}
    assert shop.levels[0] == 1
    assert max(shop.levels[1:3]) <= 2  # the first answer allows two concurrent attempts
    assert {operation.attempts for operation in operations} == {1}
    assert set(shop.executed.values()) == {1}


async def test_ended_deliveries_give_back(ledger, channel, shop):
    """LG-10: on cancellation, attempts that end in the grace period are recorded; other operations are released."""
    shop.script = {"short": [0.5], "long": [30.0]}
    async with delivering(ledger, channel, grace=2.5):
        await done(ledger, method_of(channel), "opener")  # afterwards, two attempts may run
        short = await ledger.submit(method_of(channel), Message(text="short"))
        long = await ledger.submit(method_of(channel), Message(text="long"))
        await eventually(lambda: shop.running == 2)
        before = (await ledger.get(short.id)).state
    first, second = await ledger.get(short.id), await ledger.get(long.id)

    assert before is OperationState.IN_PROGRESS
    assert (first.state, first.attempts) == (OperationState.SUCCEEDED, 1)
    assert (second.state, second.attempts, second.lease_owner) == (OperationState.PENDING, 0, None)
    assert second.next_attempt_at == second.created


async def test_two_deliverers_share(url, shop):
    """LG-6: two deliverers on one ledger deliver each operation only once."""
    patient = replace(FAST, lease=60.0)  # on a busy machine, a shorter lease may expire
    async with at_work(url, shop, patient) as (ledger, unary), at_work(url, shop, patient):
        await ledger.submit_many(prepared(ledger, unary, 200))
        await drained(ledger)

    assert len(shop.executed) == 200
    assert set(shop.executed.values()) == {1}


@pytest.mark.parametrize("limits", [{"concurrency": 3}, {"method_concurrency": {"/echo.v1.Echo/Unary": 3}}])
async def test_concurrency_is_kept(url, shop, limits):
    """LG-10: a delivery never makes more attempts at a time than `concurrency`, or than the method's own limit."""
    shop.script["*"] = [0.02] * 40
    async with at_work(url, shop, replace(FAST, **limits)) as (ledger, unary):
        await ledger.submit_many(prepared(ledger, unary, 40))
        await drained(ledger)

    assert max(shop.levels) == 3


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"method_concurrency": {"/echo.v1.Echo/Unary": 1}}])
async def test_room_is_used_at_once(url, shop, limits):
    """LG-10, LG-12: what is due when an attempt ends does not wait for the next poll."""
    async with at_work(url, shop, replace(FAST, poll=60.0, **limits)) as (ledger, unary):
        await ledger.submit_many(prepared(ledger, unary, 10))
        await drained(ledger)


async def test_nothing_is_claimed_in_vain(url, shop, monkeypatch):
    """LG-12: after a claim that got less than it asked for, the next one waits until something may be due.

    A deliverer in PostgreSQL is woken twice by its own ledger, once by NOTIFY. One in SQLite, which hears nothing of
    other processes, looks again when an attempt has ended.
    """
    async with at_work(url, shop, replace(FAST, poll=60.0)) as (ledger, unary):
        for _ in range(3):
            await done(ledger, unary)
        claims, claim = [], claiming.claim

        async def claimed(*given, **named):
            claims.append(await claim(*given, **named))
            return claims[-1]

        monkeypatch.setattr(claiming, "claim", claimed)
        for _ in range(10):
            await done(ledger, unary)
            await asyncio.sleep(0.05)

    assert sum(map(len, claims)) == 10
    assert len(claims) <= 20


async def test_a_slow_start_after_an_outage(url, shop):
    """LG-10: after the channel has reconnected, attempts begin with one at a time, however many ran before."""
    async with serving(shop) as port:
        pass
    quick = [("grpc.initial_reconnect_backoff_ms", 50)]
    async with (
        aio.insecure_channel(f"127.0.0.1:{port}", options=quick) as channel,
        opened(url) as ledger,
        delivering(ledger, channel),
    ):
        for again in (Shop(), Shop()):
            again.script["*"] = [0.3] * 12
            await ledger.submit_many(prepared(ledger, method_of(channel), 12))
            async with serving(again, port=port):
                await drained(ledger)
            while channel.get_state() is grpc.ChannelConnectivity.READY:
                await asyncio.sleep(0.02)
            await asyncio.sleep(2 * FAST.poll)  # a claim finds the channel without a connection
            assert max(again.levels[:3]) <= 2 < max(again.levels)


async def test_attempts_that_end_together(ledger, channel, shop, monkeypatch):
    """LG-10: of attempts that end within a moment, the ends are recorded together, and one claim replaces them."""
    monkeypatch.setattr(DeliveryState, "together", 1.0)
    shop.script["*"] = [0.02 * (number % 8) for number in range(40)]
    claims, records = [], []
    await ledger.submit_many(prepared(ledger, method_of(channel), 40))
    claim, record = claiming.claim, recording.record_ends

    async def claimed(*given, **named):
        claims.append(await claim(*given, **named))
        return claims[-1]

    async def recorded(db, reports):
        records.append(len(reports))
        return await record(db, reports)

    monkeypatch.setattr(claiming, "claim", claimed)
    monkeypatch.setattr(recording, "record_ends", recorded)
    async with delivering(ledger, channel), asyncio.timeout(30):
        while (await ledger.queue()).length:
            await asyncio.sleep(0.02)

    sizes = [len(taken) for taken in claims if taken]
    assert sum(sizes) == sum(records) == 40
    assert len(sizes) <= 26, sizes  # two at a time, after a slow start
    assert len(records) <= 20, records


async def test_a_policy_that_is_not_known_here(url, shop, channel, tmp_path, caplog):
    """LG-1, LG-14: an operation whose policy is not in a deliverer's file is left to others, and warned of once."""
    file = tmp_path / "backoff.toml"
    file.write_text('[policies.careful]\npreset = "standard"\n')
    async with opened(url, config=file) as ledger:
        told = await ledger.submit(method_of(channel), Message(text="a"), policy="careful")
        async with opened(url) as other, delivering(other, channel):
            await done(other, method_of(channel), "b")
            await asyncio.sleep(0.5)
            left = await other.get(told.id)
        warned = [each for each in caplog.records if "left to other deliverers" in each.message]
        async with delivering(ledger, channel):
            await until(ledger, told.id, OperationState.SUCCEEDED)

    assert (left.state, left.attempts) == (OperationState.PENDING, 0)
    assert left.lease_token == 1
    assert len(warned) == 1
    assert "careful" in warned[0].message
    assert shop.executed == {"a": 1, "b": 1}


async def test_a_target_in_another_spelling(ledger, channel, url, shop):
    """LG-10, SH-1: an operation for `dns:///host:port` is delivered for `host:port`, also one of a previous version."""
    told = await ledger.submit(f"dns:///{shop.target}", "/echo.v1.Echo/Unary", b"")
    old = await ledger.submit(shop.target, "/echo.v1.Echo/Unary", b"")
    execute(url, "UPDATE {} SET target = {} WHERE id = {}", f"dns:///{shop.target}", old.id)
    listed = await ledger.find(Filter(target=f"dns:{shop.target}"))
    queue = await ledger.queue(f"dns:///{shop.target}")
    async with delivering(ledger, channel):
        await until(ledger, told.id, OperationState.SUCCEEDED)
        await until(ledger, old.id, OperationState.SUCCEEDED)

    assert [each.id for each in listed] == [told.id, old.id]
    assert queue.length == 2
    assert listed[0].target == shop.target


async def test_an_outage_costs_nothing_of_a_deadline(ledger, channel, url, shop):
    """LG-7: a policy's deadline counts from the first attempt, not from the submit."""
    shop.script["*"] = [S.UNAVAILABLE]
    policy = "max_attempts: unlimited, delay: 20ms, deadline: 20s"
    told = await ledger.submit(method_of(channel), Message(text="a"), policy=policy)
    before = (await ledger.get(told.id)).began
    longer = "began - interval '1 hour'" if "://" in url else "began - 3600"
    execute(url, f"UPDATE {{}} SET began = {longer}")
    async with delivering(ledger, channel):
        operation = await until(ledger, told.id, OperationState.SUCCEEDED, OperationState.FAILED)

    assert (operation.state, operation.attempts) == (OperationState.SUCCEEDED, 2)
    assert operation.began > before


async def test_what_deliver_refuses(url, tmp_path):
    """LG-10, LG-14: `deliver` refuses other channels, retries that are left to grpc's core, and a concurrency of 0.

    It warns if the channel's file has a `[ledger]` without effect.
    """
    file = tmp_path / "backoff.toml"
    file.write_text('[ledger]\npoll = "7s"\n')
    slower = [("grpc.service_config", service_config(0.5))]
    async with (
        await Ledger.open(url) as ledger,
        aio.insecure_channel("127.0.0.1:1", options=slower) as retrying,
        aio.insecure_channel("127.0.0.1:1", config=file) as channel,
    ):
        with pytest.raises(TypeError, match=r"expected a channel of grpc_backoff\.aio"):
            await ledger.deliver(grpc.insecure_channel("127.0.0.1:1"))
        with pytest.raises(ValueError, match="leaves retries to grpc's core"):
            await ledger.deliver(retrying)
        with (
            pytest.warns(PolicyWarning, match=r"table \[ledger\], which has no effect"),
            pytest.raises(OptionError, match="concurrency=0: expected"),
        ):
            await ledger.deliver(channel, concurrency=0)


BAD = [
    *(("metadata", text) for text in ("[", '[["x-bin", "abc"]]', json.dumps([["x", "a\n"]]), '[["X y", "a"]]')),
    ("idempotency_key", "a\n"),
]


@pytest.mark.parametrize(("column", "stored"), BAD)
async def test_one_bad_row(url, shop, channel, column, stored):
    """LG-10: an operation whose row cannot be read fails with the reason, while all others are delivered."""
    patient = "max_attempts: unlimited, deadline: 1d, delay: 20ms, codes: INTERNAL UNAVAILABLE"
    async with opened(url, replace(FAST, policy=patient)) as ledger:
        both = [ledger.prepared(method_of(channel), Message(text=text)) for text in "ab"]
        await ledger.submit_many(both)
        execute(url, f"UPDATE {{}} SET {column} = {{}} WHERE id = {{}}", stored, both[0].id)
        async with delivering(ledger, channel) as task:
            bad = await until(ledger, both[0].id, OperationState.FAILED)
            await until(ledger, both[1].id, OperationState.SUCCEEDED)
            assert not task.done()
        found = await ledger.find()

    assert (bad.attempts, bad.code, bad.details) == (1, "INTERNAL", bad.problem)
    assert column in bad.problem
    assert [operation.id for operation in found] == [each.id for each in both]
    assert shop.executed == {"b": 1}


def trigger(condition):
    return (
        f"CREATE TRIGGER mine BEFORE UPDATE ON ledger_operations WHEN {condition} "
        "BEGIN SELECT RAISE(ABORT, 'not mine'); END"
    )


CONSTRAINT = "ALTER TABLE {{}} ADD CONSTRAINT mine CHECK ({}) NOT VALID"
DAMAGE = {
    "constraint": (
        trigger("NEW.state = 'succeeded' AND NEW.id = '{id}'"),
        "DROP TRIGGER mine",
        CONSTRAINT.format("state <> 'succeeded' OR id <> '{id}'"),
        "ALTER TABLE {} DROP CONSTRAINT mine",
    ),
    "overflow": (
        "UPDATE {} SET recorded = 9223372036854775807 WHERE id = '{id}'",
        "UPDATE {} SET recorded = 0",
        "UPDATE {} SET recorded = 2147483647 WHERE id = '{id}'",
        "UPDATE {} SET recorded = 0 WHERE recorded > 9",
    ),
    "recorded": (
        "INSERT INTO ledger_attempts (operation_id, number, ended, code) VALUES ('{id}', 1, 0, 'OK')",
        "DELETE FROM ledger_attempts WHERE ended = 0",
        "INSERT INTO grpc_backoff.attempts (operation_id, number, ended, code) VALUES ('{id}', 1, 'epoch', 'OK')",
        "DELETE FROM grpc_backoff.attempts WHERE ended = 'epoch'",
    ),
    "previous": (
        "UPDATE {} SET previous = 'x' WHERE id = '{id}'",
        "UPDATE {} SET previous = NULL",
        "UPDATE {} SET previous = 'NaN' WHERE id = '{id}'",
        "UPDATE {} SET previous = NULL WHERE id = '{id}'",
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_record_that_fails(url, shop, caplog, how):
    """LG-2: what cannot be recorded is set aside by itself and named in the log; later it is recorded, not repeated."""
    [damage, mend] = DAMAGE[how][2:] if "://" in url else DAMAGE[how][:2]
    async with at_work(url, shop, replace(FAST, lease=0.6)) as (ledger, unary):
        await ledger.pause(shop.target)
        bad, *good = [(await ledger.submit(unary, Message(text=text))).id for text in "abcd"]
        await asyncio.to_thread(execute, url, damage.replace("{id}", bad))
        await ledger.resume(shop.target)
        for id_ in good:
            await until(ledger, id_, OperationState.SUCCEEDED)
        await done(ledger, unary, "e")
        await asyncio.sleep(1.5)
        before = await ledger.get(bad)
        await asyncio.to_thread(execute, url, mend.replace("{id}", bad))
        await until(ledger, bad, OperationState.SUCCEEDED)

    assert before.state is OperationState.IN_PROGRESS
    assert shop.executed == dict.fromkeys("abcde", 1)
    named = [record.getMessage() for record in caplog.records if bad in record.getMessage()]
    assert len([text for text in named if "cannot be recorded, so it is set aside" in text]) == 1


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_loss_that_cannot_be_recorded(url, shop, caplog, how):
    """LG-6: a lost attempt that cannot be recorded is named in the log once; those of others are."""
    damage = DAMAGE[how][2] if "://" in url else DAMAGE[how][0]
    async with opened(url) as ledger:
        bad, *good = [(await ledger.submit("t", "/m/m", b"")).id for _ in range(3)]
        await claiming.claim(ledger.store, "t", 3, "gone", 30.0)
        damage = damage.replace("{id}", bad).replace("'succeeded'", "'waiting_for_retry'")
        execute(url, damage)
        await expired(url, 1.0)
        told = [await recording.lost(ledger.store, "t", ledger._policies.of_any, 1000) for _ in range(2)]

    assert sorted(each.id for some in told for each in some) == sorted(good)
    assert [record.levelname for record in caplog.records if bad in record.getMessage()] == ["ERROR"]


@pytest.mark.parametrize(
    ("column", "sqlite", "postgres", "state"),
    [
        ("lease_token", 2**63 - 1, 2**63 - 1, OperationState.SUCCEEDED),
        ("next_attempt_at", "-inf", "-infinity", OperationState.SUCCEEDED),
        ("attempts", "x", 2**31 - 1, OperationState.IN_PROGRESS),
        ("began", "x", "-infinity", OperationState.IN_PROGRESS),
    ],
)
async def test_a_row_at_the_edge(url, shop, caplog, column, sqlite, postgres, state):
    """LG-10: a row with the largest or smallest of numbers is delivered or named in the log, and stops no others."""
    value = postgres if "://" in url else float(sqlite) if sqlite == "-inf" else sqlite
    async with at_work(url, shop) as (ledger, unary):
        await ledger.pause(shop.target)
        bad, *good = [(await ledger.submit(unary, Message(text=text))).id for text in "abcd"]
        execute(url, f"UPDATE {{}} SET {column} = {{}} WHERE id = {{}}", value, bad)
        await ledger.resume(shop.target)
        for id_ in good:
            await until(ledger, id_, OperationState.SUCCEEDED)
        await done(ledger, unary, "e")
        found = await until(ledger, bad, state)

    assert found.state is state
    named = [record for record in caplog.records if bad in record.getMessage() and record.levelname == "ERROR"]
    assert (named != []) is (state is OperationState.IN_PROGRESS)
    assert shop.executed["a"] <= 1


async def test_hooks_and_listeners_that_raise(url, shop, caplog):
    """LG-6, LG-7, CH-11: what hooks and listeners raise, also CancelledError, is logged and changes no state."""

    def broken(*_):
        raise RuntimeError("mine")

    def cancelled(*_):
        raise asyncio.CancelledError

    def broken_listener(event):
        raise RuntimeError(type(event).__name__)

    shop.script["b"] = [S.INTERNAL]
    hooks = LedgerHooks(on_success=cancelled, on_exhausted=broken)
    async with at_work(url, shop, hooks=hooks, listeners=[broken_listener]) as (ledger, unary):
        await done(ledger, unary, "a")
        await done(ledger, unary, "b", OperationState.FAILED)

    raised = sorted(str(record.exc_info[1]) for record in caplog.records if record.exc_info)
    cancelled_by_hook = "the hook raised CancelledError, but its caller was not cancelled"
    assert raised == ["OperationDelivered", "OperationExhausted", "mine", cancelled_by_hook]
    assert shop.executed == {"a": 1, "b": 1}


async def test_an_interceptor_that_cancels(url, shop, caplog):
    """LG-6: if an interceptor cancels an attempt, its lease expires, and the operation is retried."""
    calls = []

    class Cancelling(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, client_call_details, request):
            calls.append(request)
            if len(calls) == 1:
                raise asyncio.CancelledError
            return await continuation(client_call_details, request)

    async with at_work(url, shop, through={"interceptors": [Cancelling()]}) as (ledger, unary):
        operation = await done(ledger, unary)
        attempts = await ledger.attempts(operation.id)

    assert [attempt.code for attempt in attempts] == ["LOST", "OK"]
    assert f"an attempt at operation {operation.id} raised" in caplog.text


async def test_nothing_secret_is_logged(url, shop, caplog):
    """RT-11, LG-11: log records never contain a payload, a metadata value or a token."""
    caplog.set_level(logging.DEBUG)
    shop.script = {"payload-a": [S.UNAVAILABLE, S.UNAUTHENTICATED], "payload-b": [S.ABORTED]}
    hooks = LedgerHooks(refresh_credentials=lambda _: [("authorization", "token-t")])
    async with at_work(url, shop, replace(FAST, metadata=("x-tenant",)), hooks=hooks) as (ledger, unary):
        first = await ledger.submit(unary, Message(text="payload-a"), metadata=[("x-tenant", "value-m")])
        second = await ledger.submit(unary, Message(text="payload-b"), metadata=[("x-tenant", "value-m")])
        await until(ledger, first.id, OperationState.SUCCEEDED)
        await until(ledger, second.id, OperationState.CONFLICT)

    ours = [record for record in caplog.records if record.name.startswith("grpc_backoff")]
    said = [f"{record.getMessage()} {vars(record)}" for record in ours]
    assert any(first.id in line for line in said)
    assert not [line for line in said if any(word in line for word in ("payload", "value-m", "token-t"))]
    assert {sent["x-tenant"] for sent in shop.metadata} == {"value-m"}
    assert "token-t" in [sent.get("authorization") for sent in shop.metadata]
    stored = dump(url)
    assert "value-m" in stored
    assert "token-t" not in stored


async def test_a_closed_channel_ends_its_delivery(url, shop):
    """LG-10: closing the channel ends its delivery with the error that a call on it would raise."""
    async with opened(url) as ledger:
        channel = aio.insecure_channel(shop.target)
        async with delivering(ledger, channel) as task:
            await asyncio.sleep(0.05)
            await channel.close()
            with pytest.raises(grpc.aio.UsageError):
                await asyncio.wait_for(task, 5)


@pytest.mark.parametrize("error", [LedgerUnavailableError("gone"), LedgerBusyError("locked")])
async def test_a_second_claim_that_fails(url, shop, channel, error, monkeypatch):
    """LG-10: if a second claim fails, what the first one claimed is delivered, and not left until it is lost."""
    limited = replace(FAST, method_concurrency=(("/echo.v1.Echo/Unary", 2),), lease=60.0)
    async with opened(url, limited) as ledger:
        claim = claiming.claim

        async def failing(*given, method=None, **how):
            if method is None:
                raise error
            return await claim(*given, method=method, **how)

        async with delivering(ledger, channel):
            for text in ("a", "b", "c"):  # after the first success, there is room for more than one
                told = await ledger.submit(method_of(channel), Message(text=text))
                operation = await until(ledger, told.id, OperationState.SUCCEEDED)
                monkeypatch.setattr(claiming, "claim", failing)

    assert (operation.attempts, shop.executed) == (1, {"a": 1, "b": 1, "c": 1})


async def test_a_claim_whose_answer_is_lost(url, shop, channel, monkeypatch):
    """LG-6, LG-10: operations that were claimed although the answer was lost are delivered, and do not count as lost.

    Another delivery of the same ledger leaves them alone.
    """
    async with opened(url, replace(FAST, policy="max_attempts: 1", lease=60.0)) as ledger:
        claim, lost = claiming.claim, []

        async def losing(*given, **how):
            claimed = await claim(*given, **how)
            if claimed and not lost:
                lost.extend(claimed)
                raise LedgerUnavailableError("no answer", stored=None)
            return claimed

        monkeypatch.setattr(claiming, "claim", losing)
        told = await ledger.submit(method_of(channel), Message(text="a"))
        async with delivering(ledger, channel), delivering(ledger, channel):
            operation = await until(ledger, told.id, OperationState.SUCCEEDED)
            attempts = await ledger.attempts(told.id)

    assert lost
    assert [attempt.code for attempt in attempts] == ["OK"]
    assert (operation.lease_token, shop.executed) == (1, {"a": 1})


@pytest.mark.parametrize("error", [None, LedgerUnavailableError("gone")])
@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_while_a_claim_is_under_way(url, shop, channel, times, error, monkeypatch):
    """LG-10: a delivery that is cancelled during a claim, even twice, ends and leaves no claimed operation and no task.

    That also holds if the claim fails.
    """
    async with opened(url) as ledger:
        told = await ledger.submit(method_of(channel), Message(text="a"))
        claiming = during_claims(monkeypatch, 0.3, error)
        task = asyncio.ensure_future(ledger.deliver(channel))
        await claiming.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await ledger.close()
    async with opened(url) as ledger:
        operation = await ledger.get(told.id)

    assert task.cancelled()
    assert (operation.state, operation.lease_owner) == (OperationState.PENDING, None)
    assert operation.lease_token == (error is None)
    assert not shop.executed
    assert not [each for each in asyncio.all_tasks() if "Delivery." in repr(each)]


async def test_ends_are_recorded_once_however_the_delivery_ends(ledger, channel, shop, monkeypatch):
    """LG-2, LG-10: when a delivery ends, each attempt that has ended is recorded exactly once."""
    shop.script = {"second": [0.15]}
    record, batches = recording.record_ends, []

    async def slow(db, reports):
        batches.append([report.id for report in reports])
        await asyncio.sleep(0.3)
        return await record(db, reports)

    monkeypatch.setattr(recording, "record_ends", slow)
    async with delivering(ledger, channel):
        first = await ledger.submit(method_of(channel), Message(text="first"))
        await eventually(lambda: batches)
        second = await ledger.submit(method_of(channel), Message(text="second"))
        await eventually(lambda: shop.executed["second"])
    states = [(await ledger.get(told.id)).state for told in (first, second)]

    assert batches == [[first.id], [second.id]]
    assert states == [OperationState.SUCCEEDED] * 2
    assert set(shop.executed.values()) == {1}


async def test_close_waits_for_what_winds_up(url, shop, channel):
    """LG-10: `close` waits until a cancelled delivery has ended, even if it was cancelled several times."""
    shop.script = {"a": [1.0]}
    ledger = await Ledger.open(url, settings=FAST)
    told = await ledger.submit(method_of(channel), Message(text="a"))
    task = asyncio.ensure_future(ledger.deliver(channel))
    await eventually(lambda: shop.running == 1)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.05)
    await ledger.close()
    async with opened(url) as ledger:
        operation = await ledger.get(told.id)

    assert task.cancelled()
    assert (operation.state, operation.attempts) == (OperationState.SUCCEEDED, 1)
    assert not [each for each in asyncio.all_tasks() if "Delivery." in repr(each)]


async def test_close_ends_deliveries(ledger, channel):
    """LG-10: closing the ledger makes its deliveries return, without cancelling their caller."""
    task = asyncio.ensure_future(ledger.deliver(channel))
    await done(ledger, method_of(channel))
    await ledger.close()

    assert await asyncio.wait_for(task, 10) is None


async def test_a_slow_hook(url, shop):
    """LG-6, LG-7: a slow hook does not delay recording results, extending leases or delivering other operations.

    The lease of the long attempt is extended, so that the other deliverer does not take its operation.
    """
    began, end = [], asyncio.Event()

    async def slow(operation):
        began.append(operation.id)
        await end.wait()

    shop.script = {"failing": [S.INTERNAL], "long": [3.0]}
    longer = replace(FAST, lease=2.0)
    async with at_work(url, shop, longer, hooks=LedgerHooks(on_exhausted=slow)) as (ledger, unary):
        await done(ledger, unary, "first")  # now two attempts may run
        long = await ledger.submit(unary, Message(text="long"))
        failing = await done(ledger, unary, "failing", OperationState.FAILED)
        async with at_work(url, shop, longer):
            await done(ledger, unary, "quick")
            operation = await until(ledger, long.id, OperationState.SUCCEEDED)
        end.set()

    assert began == [failing.id]
    assert (operation.attempts, operation.lease_token) == (1, 1)
    assert shop.executed == {"first": 1, "failing": 1, "long": 1, "quick": 1}


async def test_hooks_are_bounded(url, shop, monkeypatch):
    """LG-7, LG-10: at most `concurrency` hooks run at a time; while that many run, nothing more is claimed."""
    levels, now, end = [], [], asyncio.Event()

    async def slow(operation):
        now.append(operation.id)
        levels.append(len(now))
        await end.wait()
        now.remove(operation.id)

    shop.script["*"] = [S.INTERNAL] * 30
    async with at_work(url, shop, hooks=LedgerHooks(on_exhausted=slow), concurrency=4) as (ledger, unary):
        record = recording.record_ends

        async def record_slowly(db, reports):
            await asyncio.sleep(0.1)  # an attempt counts until it has been recorded
            return await record(db, reports)

        monkeypatch.setattr(recording, "record_ends", record_slowly)
        await ledger.submit_many(prepared(ledger, unary, 30))
        await eventually(lambda: len(now) == 4)
        await asyncio.sleep(0.3)
        before = shop.executed.total()
        end.set()
        await drained(ledger)

    assert max(levels) == 4
    assert before == 4
    assert len(levels) == 30  # before it ends, a delivery waits for its hooks


@pytest.mark.parametrize("step", [None, S.INTERNAL, S.UNAVAILABLE, S.ABORTED])
async def test_an_answer_that_is_lost(url, shop, channel, step, monkeypatch):
    """LG-7: if the database's answer to recording an attempt is lost, the event and the hook still occur only once."""
    heard, events = [], []
    shop.script["a"] = [step]
    hooks = LedgerHooks(on_exhausted=heard.append, on_conflict=heard.append)
    slow = replace(FAST, policy="max_attempts: 2, delay: 60s")
    async with opened(url, slow, hooks=hooks, listeners=[events.append]) as ledger:
        record, lost = recording.record_ends, []

        async def losing(db, reports):
            told = await record(db, reports)
            if not lost:
                lost.extend(told)
                raise LedgerUnavailableError("no answer", stored=None)
            return told

        monkeypatch.setattr(recording, "record_ends", losing)
        async with delivering(ledger, channel):
            told = await ledger.submit(method_of(channel), Message(text="a"))
            await eventually(lambda: events)
            await asyncio.sleep(0.3)
        operation = await ledger.get(told.id)

    [event] = events
    assert event == event_of(operation, lost[0])
    assert [each.state for each in heard] == [operation.state] * (step in (S.INTERNAL, S.ABORTED))
    assert (operation.attempts, operation.recorded) == (1, 1)


async def test_a_loss_is_told_though_the_database_fails(url, shop, channel, monkeypatch):
    """LG-6, LG-7: `on_exhausted` is called for a lost last attempt even if the first read of its operation fails."""
    heard = []
    async with opened(
        url, replace(FAST, policy="max_attempts: 1"), hooks=LedgerHooks(on_exhausted=heard.append)
    ) as ledger:
        told = await ledger.submit(method_of(channel), Message(text="a"))
        await claiming.claim(ledger.store, shop.target, 1, "dead", 0.001)
        find, failed = queries.find, []

        async def failing(*given, **named):
            if not failed:
                failed.append(given)
                raise LedgerUnavailableError("gone")
            return await find(*given)

        monkeypatch.setattr(queries, "find", failing)
        async with delivering(ledger, channel):
            await eventually(lambda: heard)

    assert failed
    assert [(each.id, each.state, each.code) for each in heard] == [(told.id, OperationState.FAILED, "LOST")]


async def test_everything_that_is_old_is_pruned(url, shop, channel):
    """LG-11: a delivery prunes all old operations promptly, even if they need several transactions."""
    async with opened(url, replace(FAST, keep=0.001)) as ledger:
        for _ in range(2):
            some = await ledger.submit_many([ledger.prepared("t", "/m/m", b"") for _ in range(750)])
            await ledger.discard(*(told.id for told in some))

        async def pruned():
            return not (await ledger.queue()).counts

        async with delivering(ledger, channel):
            await eventually(pruned)


@pytest.mark.parametrize("step", [None, S.UNAVAILABLE])
async def test_an_end_that_cannot_be_recorded(url, shop, channel, step, monkeypatch):
    """LG-2, LG-6: if an attempt's result cannot be recorded, its lease expires, and the attempt counts as lost.

    If the operation were returned to the queue instead, its backoff would be lost, and the next attempt would start at
    once.
    """
    shop.script["a"] = [step]
    async with opened(url, replace(FAST, grace=0.2, policy="max_attempts: 5, delay: 60s, jitter: none")) as ledger:

        async def failing(*_):
            raise LedgerUnavailableError("gone")

        record = recording.record_ends
        monkeypatch.setattr(recording, "record_ends", failing)
        told = await ledger.submit(method_of(channel), Message(text="a"))
        async with delivering(ledger, channel):
            await eventually(lambda: shop.executed and not shop.running)
            await asyncio.sleep(0.2)
        monkeypatch.setattr(recording, "record_ends", record)
        async with delivering(ledger, channel):
            operation = await until(ledger, told.id, OperationState.WAITING)
            attempts = await ledger.attempts(told.id)

    assert [attempt.code for attempt in attempts] == ["LOST"]
    assert operation.backoff_request_seconds == 60
    assert shop.executed == {"a": 1}


async def test_its_own_leases_after_an_outage(ledger, channel, shop, monkeypatch):
    """LG-6: if a deliverer's leases expire during an outage, it does not treat its own attempts as lost afterwards."""
    down, looked = asyncio.Event(), asyncio.Event()
    parts = {"claim": claiming, "extend": claiming, "lost": recording, "record_ends": recording}
    real = {name: getattr(part, name) for name, part in parts.items()}

    def failing(name):
        async def ask(*given, **named):
            if down.is_set() or (name == "record_ends" and not looked.is_set()):
                raise LedgerUnavailableError("gone")
            told = await real[name](*given, **named)
            if name == "lost" and shop.executed:
                looked.set()
            return told

        return ask

    for name, part in parts.items():
        monkeypatch.setattr(part, name, failing(name))
    claim_or_fail = claiming.claim

    async def claim(*given, **named):
        taken = await claim_or_fail(*given, **named)
        if taken and not looked.is_set():
            down.set()
        return taken

    monkeypatch.setattr(claiming, "claim", claim)
    told = await ledger.submit(method_of(channel), Message(text="a"))
    async with delivering(ledger, channel):
        await asyncio.wait_for(down.wait(), 10)
        await asyncio.sleep(1.5 * FAST.lease)
        down.clear()
        await until(ledger, told.id, OperationState.SUCCEEDED)
    [attempt] = await ledger.attempts(told.id)

    assert shop.executed == {"a": 1}
    assert (attempt.code, attempt.delay) == ("OK", None)


async def test_a_connection_that_breaks_behind_a_claim(url, monkeypatch):
    """LG-10: if the connection is lost just after a claim, the operation returns to the queue without an attempt."""
    shop, quick = Shop(), [("grpc.initial_reconnect_backoff_ms", 50)]
    async with opened(url) as ledger, contextlib.AsyncExitStack() as server:
        port = await server.enter_async_context(serving(shop))
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=quick) as channel:
            await channel.channel_ready()
            claim, claimed = claiming.claim, asyncio.Event()

            async def breaking(*given, **named):
                taken = await claim(*given, **named)
                if taken and not claimed.is_set():
                    claimed.set()
                    await server.aclose()
                    while channel.get_state() is grpc.ChannelConnectivity.READY:
                        await asyncio.sleep(0.01)
                return taken

            monkeypatch.setattr(claiming, "claim", breaking)
            told = await ledger.submit(method_of(channel), Message(text="a"))
            async with delivering(ledger, channel):
                await claimed.wait()
                given_back = await until(ledger, told.id, OperationState.PENDING)
                async with serving(shop, port=port):
                    after = await until(ledger, told.id, OperationState.SUCCEEDED)
                    attempts = await ledger.attempts(told.id)

    assert (given_back.lease_token, given_back.attempts, given_back.recorded) == (1, 0, 0)
    assert (after.attempts, [attempt.code for attempt in attempts]) == (1, ["OK"])
    assert shop.executed == {"a": 1}


async def test_a_key_is_held(url, shop):
    """LG-15: when an operation fails, `on_blocked` is called for its order key, whose later ones wait for `replay`."""
    shop.script["a"] = [S.INVALID_ARGUMENT]
    heard = []
    hooks = LedgerHooks(on_exhausted=lambda each: heard.append("exhausted"), on_blocked=heard.append)
    async with at_work(url, shop, hooks=hooks) as (ledger, unary):
        first = await ledger.submit(unary, Message(text="a"), order_key="customer 7")
        second = await ledger.submit(unary, Message(text="b"), order_key="customer 7")
        other = await ledger.submit(unary, Message(text="c"), order_key="customer 8")
        await until(ledger, first.id, OperationState.FAILED)
        await until(ledger, other.id, OperationState.SUCCEEDED)
        held = await ledger.get(second.id)
        await ledger.replay(first.id)
        await until(ledger, second.id, OperationState.SUCCEEDED)

    assert held.state is OperationState.PENDING
    assert heard[0] == "exhausted"
    assert [(each.id, each.order_key) for each in heard[1:]] == [(first.id, "customer 7")]
    assert shop.executed == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize("submits", [False, True])
async def test_a_delivery_leaves_no_channel_to_the_collector(url, shop, submits):
    """CB-10: a channel is gone as soon as its delivery has ended and it has been closed."""
    async with opened(url) as ledger:
        gc.collect()
        gc.disable()
        try:
            channel = aio.insecure_channel(shop.target)
            kept = weakref.ref(channel)
            async with channel, delivering(ledger, channel) as task:
                if submits:
                    await done(ledger, method_of(channel))
                else:
                    await channel.channel_ready()
            del channel, task
            await eventually(lambda: kept() is None)
        finally:
            gc.enable()
