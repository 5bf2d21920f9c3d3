"""The class `Ledger`, and attempts that user code records itself."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from random import Random

import grpc
import pytest

from grpc_backoff import OptionError, aio
from grpc_backoff.ledger import (
    Filter,
    Ledger,
    LedgerBusyError,
    LedgerHooks,
    LedgerLimitError,
    LedgerStateError,
    LedgerUnavailableError,
    OperationConflicted,
    OperationExhausted,
    OperationRetried,
    OperationState,
)
from grpc_backoff.ledger.transactions import claiming, order_keys, recording, submitting
from tests.ledger.conftest import SETTINGS, locking, submission
from tests.ledger.steps import fail_many


async def test_the_environments_file(url, tmp_path, monkeypatch):
    """LG-14: without `config`, the file that the environment variable names is used, as for channels."""
    file = tmp_path / "backoff.toml"
    file.write_text('[ledger]\npoll = "7s"\n')
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    async with await Ledger.open(url) as ledger:
        assert ledger.settings.poll == 7.0


async def test_a_key_for_another_request(ledger):
    """LG-1: a key is unique for target and method; with another request, it is refused, and nothing is stored."""
    first = await ledger.submit("t", "/m/m", b"a", idempotency_key="k")
    other = await ledger.submit("u", "/m/m", b"b", idempotency_key="k")

    assert (first.new, other.new) == (True, True)
    prepared = [ledger.prepared("t", "/m/m", b"c"), ledger.prepared("t", "/m/m", b"b", idempotency_key="k")]
    with pytest.raises(LedgerStateError, match="already has the idempotency key 'k', with another request"):
        await ledger.submit_many(prepared)
    assert len(await ledger.find()) == 2


async def test_a_key_that_is_pruned_meanwhile(ledger):
    """LG-1: if the row that has the key is pruned before it is looked up, the operation is stored."""
    submission = ledger.prepared("t", "/m/m", b"a", idempotency_key="k")
    plan = submitting.plan(ledger.store, [submission])

    answers = ([[]], [[]], [[(submission.id,)]])  # met a key; it is gone; stored
    assert next(plan) == []  # no order key is locked
    texts = [plan.send(answer)[0].text for answer in ([], *answers[:2])]
    with pytest.raises(StopIteration) as end:
        plan.send(answers[2])

    assert ["INSERT" in text for text in texts] == [True, False, True]
    assert [(told.id, told.new) for told in end.value.value] == [(submission.id, True)]


async def test_retarget(ledger):
    """LG-10: `retarget` moves what has not ended well, except an operation whose key the new target has."""
    moved = await ledger.submit("old", "/m/m", b"a")
    kept = await ledger.submit("old", "/m/m", b"b", idempotency_key="k")
    done = await ledger.submit("old", "/m/m", b"c")
    await ledger.submit("new", "/m/m", b"b", idempotency_key="k")
    await ledger.record_success(done.id)

    assert await ledger.retarget("dns:///old", "new") == 1
    assert [(await ledger.get(told.id)).target for told in (moved, kept, done)] == ["new", "old", "old"]


async def test_attempts_made_by_hand(ledger):
    """LG-2, seed 001: ten concurrent calls of `record_failure` for one operation count as ten attempts."""
    told = await ledger.submit("t", "/m/m", b"", policy="preset: steps, deadline: 1d")

    done = await asyncio.gather(*(ledger.record_failure(told.id, "UNAVAILABLE", "down") for _ in range(10)))
    after = await ledger.get(told.id)

    assert sorted(each.attempts for each in done) == list(range(1, 11))
    assert (after.attempts, len(await ledger.attempts(told.id)), after.state) == (10, 10, OperationState.WAITING)
    assert (await ledger.record_success(told.id)).state is OperationState.SUCCEEDED
    assert await ledger.set_backoff(told.id, 1.0) is False


async def test_what_the_server_said_of_an_attempt_made_by_hand(ledger):
    """LG-4, seed 001: `record_failure` takes a code in any form, and a hint from a worker or the call's metadata."""
    ids = [(await ledger.submit("t", "/m/m", b"", policy="standard")).id for _ in range(4)]

    hinted = await ledger.record_failure(ids[0], "unavailable", hint=7)
    read = await ledger.record_failure(
        ids[1], grpc.StatusCode.UNAVAILABLE, trailing_metadata=[("grpc-retry-pushback-ms", "1500")]
    )
    capped = await ledger.record_failure(ids[2], "UNAVAILABLE", hint=1e6)

    assert (hinted.code, hinted.source) == ("UNAVAILABLE", "retry-after")
    assert 7 <= hinted.delay <= 12
    assert (read.delay, read.source) == (1.5, "grpc-retry-pushback-ms")
    assert 30 <= capped.delay <= 35
    for given in ({"code": "NOPE"}, {"code": "OK"}, {"code": "UNAVAILABLE", "hint": -1}):
        with pytest.raises(OptionError, match="expected"):
            await ledger.record_failure(ids[3], **given)
    assert (await ledger.get(ids[3])).attempts == 0


async def test_what_will_never_fit(ledger):
    """LG-4, RT-2: `record_failure` gives up at once if a message was too large, as a delivery does."""
    told = await ledger.submit("t", "/m/m", b"")
    recorded = await ledger.record_failure(
        told.id, "RESOURCE_EXHAUSTED", "grpc: received message larger than max (5 vs. 4)"
    )
    assert (recorded.state, recorded.attempts) == (OperationState.FAILED, 1)


@pytest.mark.parametrize(
    ("details", "state"),
    [("no healthy upstream", OperationState.WAITING), ("upstream request timeout", OperationState.FAILED)],
)
async def test_what_never_ran(ledger, details, state):
    """RT-14: a ledger's policy may repeat only what never ran; the rest fails, until it is replayed."""
    told = await ledger.submit("t", "/m/m", b"", policy="retry: 5, delay: 1s, never_ran_only: true")
    assert (await ledger.record_failure(told.id, "UNAVAILABLE", details)).state is state


async def test_a_backoff_by_hand(ledger):
    """LG-4, seed 001: `set_backoff` refuses anything but a duration and keeps to the policy's cap."""
    told = await ledger.submit("t", "/m/m", b"", policy="preset: steps, deadline: 1d")

    for seconds in (float("nan"), float("inf"), -1.0, "soon"):
        with pytest.raises(OptionError, match="seconds="):
            await ledger.set_backoff(told.id, seconds)
    assert (await ledger.get(told.id)).state is OperationState.PENDING
    assert await ledger.set_backoff(told.id, 1e9)
    assert (await ledger.get(told.id)).backoff_request_seconds == 60.0


async def test_a_resolution_that_is_refused(ledger):
    """LG-8, LG-11: `resolve` checks the type and the size of a request like `submit`."""
    told = await ledger.submit("t", "/m/m", b"a")
    await ledger.record_failure(told.id, "ABORTED")

    with pytest.raises(TypeError, match="request=<str>: expected bytes"):
        await ledger.resolve(told.id, request="text")
    with pytest.raises(LedgerLimitError, match="request=101 bytes"):
        await ledger.resolve(told.id, request=b"x" * 101)
    assert [(each.state, each.request) for each in await ledger.find()] == [(OperationState.CONFLICT, b"a")]


async def test_attempts_made_by_hand_are_told(url):
    """LG-7, LG-8: `record_failure` emits the same event and calls the same hook as a failed attempt in a delivery."""
    heard, events = [], []
    hooks = LedgerHooks(on_exhausted=heard.append, on_conflict=heard.append)
    async with await Ledger.open(url, hooks=hooks, listeners=[events.append]) as ledger:
        ids = [(await ledger.submit("t", "/m/m", b"", policy="max_attempts: 2, delay: 1s")).id for _ in range(2)]
        for _ in range(2):
            await ledger.record_failure(ids[0], "UNAVAILABLE")
        await ledger.record_failure(ids[1], "ABORTED")
        await ledger.record_failure(ids[0], "UNAVAILABLE")

    assert [(each.id, each.state, each.attempts) for each in heard] == [
        (ids[0], OperationState.FAILED, 2),
        (ids[1], OperationState.CONFLICT, 1),
    ]
    assert [type(event) for event in events] == [OperationRetried, OperationExhausted, OperationConflicted]
    assert events[1].reason == "no attempts are left"


async def test_one_that_is_not_there(ledger):
    """LG-7: LedgerStateError is raised for an unknown id, and by `resolve` for an operation not in conflict."""
    for id_ in ("00000000-0000-4000-8000-000000000000", "nonsense"):
        with pytest.raises(LedgerStateError, match=r"expected an operation id|there is no operation"):
            await ledger.get(id_)
    with pytest.raises(LedgerStateError, match="is pending, not in conflict"):
        await ledger.resolve((await ledger.submit("t", "/m/m", b"")).id)


async def test_prune_takes_a_duration(ledger):
    """LG-11: `prune` refuses an age that is no duration and deletes nothing."""
    told = await ledger.submit("t", "/m/m", b"")
    await ledger.discard(told.id)

    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(OptionError, match=f"^older_than={seconds}: expected a finite, non-negative number"):
            await ledger.prune(seconds)
    assert (await ledger.get(told.id)).state is OperationState.DISCARDED


async def test_busy_is_raised_where_one_asks(ledger, monkeypatch):
    """LG-2: if the row stays locked, `record_failure` raises LedgerBusyError, whereas a delivery would try again."""

    async def busy(_db, _reports):
        return [LedgerBusyError("locked")]

    told = await ledger.submit("t", "/m/m", b"")
    monkeypatch.setattr(recording, "record_ends", busy)
    with pytest.raises(LedgerBusyError):
        await ledger.record_failure(told.id, "UNAVAILABLE")


@pytest.mark.parametrize(
    ("url", "how", "message"),
    [
        ("mysql://localhost/x", {}, "expected a path, sqlite:///path or postgresql://"),
        (
            "application_name=shop password=hunter2 options=a://b",
            {},
            "expected a path, sqlite:///path or postgresql://",
        ),
        ("user:hunter2@host://name", {}, "expected a path, sqlite:///path or postgresql://"),
        ("unused.db", {"hooks": object()}, "expected a LedgerHooks"),
        ("unused.db", {"rng": Random}, "rng=.*: expected a source of random numbers"),
        (
            "unused.db",
            {"listeners": [print, asyncio.sleep]},
            r"listeners\[1\]=.*: expected a function .* not a coroutine",
        ),
        ("unused.db", {"settings": replace(SETTINGS, policy="nowhere")}, "nowhere"),
    ],
)
async def test_what_is_not_opened(url, how, message):
    """LG-9, LG-14: an unsupported URL, hooks of another type, and settings with an unknown policy are refused."""
    with pytest.raises(OptionError, match=message) as caught:
        await Ledger.open(url, **how)

    assert "hunter2" not in str(caught.value)


async def test_a_path_like_a_connection_string(tmp_path):
    """LG-9: the path of an SQLite file may have directories such as `user=shop`, which libpq's syntax has as well."""
    file = tmp_path / "user=shop" / "service=x.db"
    file.parent.mkdir()

    async with await Ledger.open(file):
        pass

    assert file.exists()


async def test_readiness_with_the_files_parameters(url, tmp_path):
    """LG-3, LG-5, LG-14, seed 001: if an operation's owner died, `ready` uses the policy from the file."""
    file = tmp_path / "backoff.toml"
    file.write_text(
        '[policies.mine]\npreset = "steps"\ndeadline = "1d"\nsteps = [77]\nmax_delay = 120\n[ledger]\npolicy = "mine"\n'
    )
    async with await Ledger.open(url, config=file) as ledger:
        ids = [told.id for told in await ledger.submit_many([ledger.prepared("t", "/m/m", b"") for _ in range(3)])]
        claimed = await claiming.claim(ledger.store, "t", 3, "dead", 0.001)
        await asyncio.sleep(0.05)
        told = await ledger.ready(Filter(ids=tuple(ids)))

    assert [(each.ready, each.why) for each in told] == [(False, "its owner is gone")] * 3
    ends = {operation.id: operation.lease_until for operation in claimed}
    assert all(abs(each.at - ends[each.id] - 77.0) < 0.001 for each in told)


async def test_wake_ups_are_gathered(ledger, monkeypatch):
    """LG-12: several submits for one target at the same moment send other processes a single notification, at once."""
    heard = []

    async def notify(target):
        heard.append(target)

    monkeypatch.setattr(ledger.store, "notify", notify)
    for target in ["t", "u"] * 10:
        ledger._waking.notify(target)
    for _ in range(3):
        await asyncio.sleep(0)
    at_once = sorted(heard)
    await asyncio.sleep(0.05)

    assert at_once == sorted(heard) == ["t", "u"]


async def test_a_closed_ledger(url):
    """LG-9, LG-10, CB-10: `close` may be called twice; then `submit` and `deliver` raise an error."""
    ledger = await Ledger.open(url)
    await ledger.close()
    await ledger.close()

    with pytest.raises(LedgerUnavailableError, match="the ledger is closed; nothing was stored"):
        await ledger.submit("t", "/m/m", b"")
    async with aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(LedgerUnavailableError, match="the ledger is closed"):
            await asyncio.wait_for(ledger.deliver(channel), 5)


FORKING = """
import asyncio, os, signal, sys
from grpc_backoff.ledger import Ledger, LedgerUnavailableError

async def opened():
    ledger = await Ledger.open(sys.argv[1])
    await ledger.submit("t", "/m/m", b"", idempotency_key="before")
    return ledger

loop = asyncio.new_event_loop()
ledger = loop.run_until_complete(opened())
child = os.fork()
if not child:
    signal.alarm(10)
    try:
        asyncio.run(ledger.submit("t", "/m/m", b"", idempotency_key="child"))
    except LedgerUnavailableError as error:
        print(error, flush=True)
    try:
        asyncio.run(ledger.submit("t", "/m/m", b"", within=object()))
    except LedgerUnavailableError as error:
        print(error, flush=True)
    asyncio.run(ledger.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
loop.run_until_complete(ledger.submit("t", "/m/m", b"", idempotency_key="after"))
print(sorted(each.idempotency_key for each in loop.run_until_complete(ledger.find())))
loop.run_until_complete(ledger.close())
loop.close()
"""


async def test_a_fork(url):
    """LG-9: the child of a fork cannot use the parent's ledger, and the parent can still use it."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", FORKING, url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    refused, within, stored = done.stdout.splitlines()
    assert refused == within
    assert refused.endswith("the ledger was opened before a fork; open one in each process; nothing was stored")
    assert stored == "['after', 'before']"


@pytest.mark.parametrize(
    ("later", "act"),
    [
        ("take_up", lambda ledger, id_: ledger.discard(id_)),
        ("notify", lambda ledger, _: ledger.resume("t")),
        ("notify", lambda ledger, _: ledger.retarget("t", "u")),
    ],
)
async def test_what_follows_a_write_fails(ledger, later, act, monkeypatch):
    """LG-9: if something after a write fails, the write counts; no error says that nothing was stored."""
    id_ = (await ledger.submit("t", "/m/m", b"")).id
    await ledger.pause("t")
    await asyncio.sleep(0.2)  # for the notification

    async def failing(*_):
        raise LedgerUnavailableError("gone")

    monkeypatch.setattr(order_keys if later == "take_up" else ledger.store, later, failing)

    assert await act(ledger, id_) in ([id_], True, 1)


FAILED = Filter(states=(OperationState.FAILED,))


async def test_an_interrupted_replay(url):
    """LG-7: failed operations are replayed in batches; an interrupted replay is run again and completes the rest."""
    async with await Ledger.open(url) as ledger:
        ids = await fail_many(ledger, 1200)
        replayed = []
        async for some in ledger.pages(FAILED):
            replayed += await ledger.replay(*some)
            break
        left = (await ledger.queue()).counts[OperationState.FAILED]
        async for some in ledger.pages(FAILED):
            replayed += await ledger.replay(*some)

        assert left == 200
        assert sorted(replayed) == sorted(ids)
        assert (await ledger.queue()).counts == {OperationState.PENDING: 1200}


async def test_a_replay_reads_no_requests(url):
    """LG-7: the memory that a replay of all failed operations needs does not depend on the size of their requests."""
    async with await Ledger.open(url) as ledger:
        size, number = 65_536, 300
        for _ in range(number // 100):
            await fail_many(ledger, 100, bytes(size))
        tracemalloc.start()
        try:
            replayed = [id_ async for ids in ledger.pages(FAILED) for id_ in await ledger.replay(*ids)]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert len(replayed) == number
        assert most < size * number / 4


async def test_a_caller_that_was_cancelled_before_an_error(url, settings):
    """LG-10: if a caller is cancelled and its request then fails, nothing is said of an exception never retrieved."""
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with await Ledger.open(url, settings=replace(settings, lock_timeout=0.3)) as ledger:
        with locking(url):
            caller = asyncio.ensure_future(ledger.submit("t", "/m/m", b""))
            await asyncio.sleep(0.1)
            caller.cancel()
            await asyncio.wait([caller])
            await asyncio.sleep(1.0)  # the request gives up after 0.3 s
        assert await ledger.find() == []
    gc.collect()
    await asyncio.sleep(0)

    assert told == []


ONE = submission(1).id
NUL, SURROGATE = "a\0", "a\ud800"


@pytest.mark.parametrize(
    ("named", "refused"),
    [
        *(("target", lambda ledger, it=it: ledger.submit(it, "/m/m", b"")) for it in (NUL, SURROGATE)),
        *(("method", lambda ledger, it=it: ledger.submit("t", f"/m/{it}", b"")) for it in (NUL, SURROGATE)),
        *(
            ("order_key", lambda ledger, it=it: ledger.submit("t", "/m/m", b"", order_key=it))
            for it in (NUL, SURROGATE)
        ),
        *(
            ("not_before", lambda ledger, it=it: ledger.submit("t", "/m/m", b"", not_before=it))
            for it in (1e18, 9e15, 1.8e12, 10**400)
        ),
        *(
            ("metadata", lambda ledger, it=it: ledger.submit("t", "/m/m", b"", metadata=it))
            for it in ({"x-a": "b"}, [("x-a",)], 5, [None], "ab")
        ),
        *(
            ("trailing_metadata", lambda ledger, it=it: ledger.record_failure(ONE, "UNAVAILABLE", trailing_metadata=it))
            for it in ({"retry-after": "b"}, 5, [None])
        ),
        *(
            (f"Filter.{name}", lambda ledger, name=name, it=it: ledger.find(Filter(**{name: it})))
            for name in ("target", "method", "idempotency_key", "order_key", "code")
            for it in (NUL, SURROGATE, 5)
        ),
        *(
            ("Filter.older_than", lambda ledger, it=it: ledger.find(Filter(older_than=it)))
            for it in (math.inf, math.nan, -1, "a")
        ),
        *(("limit", lambda ledger, it=it: ledger.find(limit=it)) for it in (-1, "a", 1.5, None)),
        *(("target", lambda ledger, it=it: ledger.pause(it)) for it in (NUL, SURROGATE)),
        *(("target", lambda ledger, it=it: ledger.queue(it)) for it in (NUL, SURROGATE, 5)),
        *(("target", lambda ledger, it=it: ledger.retarget("t", it)) for it in (NUL, SURROGATE)),
    ],
)
async def test_inputs_that_no_database_can_store(ledger, named, refused):
    """LG-9, LG-11: what cannot be stored or found is refused by name, with the same error on every database."""
    with pytest.raises(OptionError, match=rf"^{named}=.*: expected"):
        await refused(ledger)


async def test_inputs_at_the_edge(ledger):
    """LG-9: values that only look wrong are accepted on every database."""
    id_ = (await ledger.submit("t", "/m/m", b"", metadata={}, not_before=253_402_300_799)).id
    await ledger.submit("t", "/m/m", b"", metadata=None)
    for details in (None, SURROGATE, NUL):
        await ledger.record_failure(id_, "UNAVAILABLE", details, trailing_metadata=None)
    with pytest.raises(TypeError, match=r"details=<bytes>: expected text"):
        await ledger.record_failure(id_, "UNAVAILABLE", b"x")

    assert await ledger.find(Filter(ids=("x", NUL, SURROGATE))) == []
    assert await ledger.find(Filter(older_than=1e18)) == []
    assert len(await ledger.find(limit=2**70)) == 2
    assert await ledger.prune(1e18) == 0


async def test_the_error_of_a_read(ledger):
    """LG-9: only the error of a write says what was stored."""
    await ledger.close()
    with pytest.raises(LedgerUnavailableError, match=r"the ledger is closed$"):
        await ledger.find()
    with pytest.raises(LedgerUnavailableError, match=r"the ledger is closed; nothing was stored$"):
        await ledger.prune()
