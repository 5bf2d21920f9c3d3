"""Arguments of a ledger: what `submit` accepts and refuses, and limits.

One of a wrong type or out of range is an error that names it, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from dataclasses import fields, replace
from functools import partial

import grpc
import pytest

from grpc_backoff import HedgingPolicy, OptionError, aio
from grpc_backoff.ledger import (
    Filter,
    Ledger,
    LedgerError,
    LedgerHooks,
    LedgerLimitError,
    LedgerSettings,
    LedgerStateError,
    sync,
)
from grpc_backoff.ledger.inbox import AioInbox, SyncInbox
from grpc_backoff.ledger.stores.urls import open_store
from tests.echo import EchoStub, Message
from tests.ledger.conftest import SETTINGS
from tests.ledger.steps import did

METHOD = "/shop.Orders/Place"
ODD = (
    *(None, True, 0, 5, -1, 10**30, -1.0, 1e30, math.nan, math.inf),
    *("", "x", "\0", "\ud800", "y" * 100_000, b"", b"x"),
    *([], [1], [None], (), (1,), {}, {"a": 1}, {1, 2}, object()),
)
SUBMIT = ("idempotency_key", "metadata", "policy", "order_key", "not_before", "not_after", "keep_response", "within")
NAMED = re.compile(r"[\w.]+(\[\w+\])?=.*: expected |request and metadata=|request=", re.DOTALL)
"""How an error about a value begins."""
STATES = re.compile(r"there is no operation|operation .* is (pending|waiting_for_retry)")
"""What a ledger answers about an operation that is not there or in another state."""


async def tried(call):
    """Call a function, and return what is wrong with the error that it raises, if anything."""
    try:
        answer = await did(call())
        if inspect.isasyncgen(answer):
            async for _ in answer:
                pass
    except LedgerStateError as error:
        return None if NAMED.match(str(error)) or STATES.match(str(error)) else repr(error)
    except (LedgerError, OptionError, TypeError) as error:
        return None if NAMED.match(str(error)) else repr(error)
    except TimeoutError:  # of `wait`
        return None
    except Exception as error:  # noqa: BLE001 - it is reported
        return repr(error)
    return None


def found(ledger, **parts):
    return ledger.find(Filter(**parts))


def constructions(ledger, odd):
    """Yield constructions of a ledger's values, with an odd value for each part in turn."""
    for part in (part.name for part in fields(Filter)):
        yield f"Filter.{part}", partial(found, ledger, **{part: odd})
        yield f"Filter.{part} of one", partial(found, ledger, **{part: (odd,)})
    for part in (part.name for part in fields(LedgerSettings)):
        yield f"LedgerSettings.{part}", partial(replace, SETTINGS, **{part: odd})
    for part in (part.name for part in fields(LedgerHooks)):
        yield f"LedgerHooks.{part}", partial(LedgerHooks, **{part: odd})


def calls(ledger, id_, prepared, stub, odd):
    """Yield calls of all methods, with an odd value for each parameter in turn."""
    yield from constructions(ledger, odd)
    for part in SUBMIT:
        yield f"submit.{part}", partial(ledger.submit, "t", METHOD, b"x", **{part: odd})
    yield "submit.call", partial(ledger.submit, odd, METHOD, b"x")
    yield "submit.method", partial(ledger.submit, "t", odd, b"x")
    yield "submit.request", partial(ledger.submit, "t", METHOD, odd)
    yield "submit.message", partial(ledger.submit, stub.Unary, odd)
    yield "submit.metadata key", partial(ledger.submit, "t", METHOD, b"x", metadata=[(odd, "v")])
    yield "submit_many", partial(ledger.submit_many, odd)
    yield "submit_many.one", partial(ledger.submit_many, [prepared, odd])
    yield "submit_many.within", partial(ledger.submit_many, [prepared], within=odd)
    yield "statement", partial(ledger.statement, odd)
    yield "statement.style", partial(ledger.statement, prepared, odd)
    for name in ("get", "attempts", "replay", "discard", "resolve", "record_success", "find", "ready", "queue"):
        yield name, partial(getattr(ledger, name), odd)
    for name in ("pause", "resume", "prune", "deliver"):
        yield name, partial(getattr(ledger, name), odd)
    yield "wait", partial(ledger.wait, odd, 0)
    if odd is not None and not (isinstance(odd, int | float) and odd > 0):
        yield "wait.timeout", partial(ledger.wait, id_, odd)
    yield "record_failure", partial(ledger.record_failure, odd, "UNAVAILABLE")
    yield "record_failure.code", partial(ledger.record_failure, id_, odd)
    for part in ("details", "hint", "trailing_metadata"):
        yield f"record_failure.{part}", partial(ledger.record_failure, id_, "UNAVAILABLE", **{part: odd})
    for pair in ((odd, "v"), ("retry-after", odd)):
        yield "trailing pair", partial(ledger.record_failure, id_, "UNAVAILABLE", trailing_metadata=[pair])
    yield "set_backoff", partial(ledger.set_backoff, odd, 1.0)
    yield "set_backoff.seconds", partial(ledger.set_backoff, id_, odd)
    for part in ("limit", "newest_first", "after"):
        yield f"find.{part}", partial(ledger.find, **{part: odd})
    yield "ready.limit", partial(ledger.ready, limit=odd)
    yield "resolve.request", partial(ledger.resolve, id_, request=odd)
    yield "retarget.old", partial(ledger.retarget, odd, "u")
    yield "retarget.new", partial(ledger.retarget, "nowhere", odd)


@pytest.mark.parametrize("api", [Ledger, sync.Ledger], ids=["aio", "sync"])
async def test_odd_arguments(url, api):
    """LG-9, LG-11: each error about an argument names it and says what was expected, and what was stored stays."""
    wrong = {}
    async with contextlib.AsyncExitStack() as stack:
        ledger = await did(api.open(url, settings=SETTINGS))
        stack.push_async_callback(closed, ledger)
        stub = EchoStub(await stack.enter_async_context(aio.insecure_channel("shop.example:443")))
        told = await did(ledger.submit("t", METHOD, b"kept", not_before=4e9))
        prepared = ledger.prepared("t", METHOD, b"x")
        for odd in ODD:
            for name, call in calls(ledger, told.id, prepared, stub, odd):
                problem = await tried(call)
                if problem is not None:
                    wrong[name, ascii(odd)[:20]] = problem[:200]
            if api is Ledger:
                problem = await tried(partial(ledger.pages, odd))
                wrong |= {} if problem is None else {("pages", ascii(odd)[:20]): problem}
        kept = await did(ledger.get(told.id))
    assert wrong == {}
    assert kept.request == b"kept"


async def closed(made):
    await did(made.close())


@pytest.mark.parametrize("opening", [Ledger, sync.Ledger, AioInbox, SyncInbox], ids=lambda each: each.__name__)
async def test_odd_arguments_of_open(url, opening):
    """LG-9, IB-1: so is each error of `open`, also of an inbox, whose `prune` is like that of a ledger."""
    ledger = opening in (Ledger, sync.Ledger)
    ours = ("settings", "hooks", "listeners", "rng") if ledger else ("required", "scope", "hold", "connections")
    wrong = {}

    async def opened(first, given):
        made = await did(opening.open(first, **given))
        await closed(made)

    async def pruned(odd):
        made = await did(opening.open(url))
        try:
            await did(made.prune(odd))
        finally:
            await closed(made)

    for odd in ODD:
        tries = {part: partial(opened, url, {part: odd}) for part in ours}
        if ledger and not isinstance(odd, str):  # a path
            tries["config"] = partial(opened, url, {"config": odd})
        if odd not in ("x", "y" * 100_000):  # so is this
            tries["url"] = partial(opened, odd, {})
        tries["prune"] = partial(pruned, odd)
        for name, call in tries.items():
            problem = await tried(call)
            if problem is not None:
                wrong[name, ascii(odd)[:20]] = problem[:200]
    assert wrong == {}


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda ledger: ledger.submit_many([None]), r"prepared=None: expected a list of operations"),
        (lambda ledger: ledger.submit_many(None), r"prepared=None: expected a list of operations"),
        (lambda ledger: ledger.find(5), r"which=<int>: expected a Filter"),
        (lambda _: Filter(states=5), r"Filter\.states=5: expected a tuple of states"),
        (lambda _: Filter(code="UNAVAIL"), r"Filter\.code='UNAVAIL': expected 'CANCELLED', .* or 'LOST'"),
        (lambda _: Filter(ids="an id"), r"Filter\.ids='an id': expected a tuple of ids"),
        (lambda ledger: ledger.deliver(5), r"(connect|channel)=<int>: expected a"),
        (lambda _: sync.Ledger.open(""), r"url='': expected a path"),
    ],
    ids=["an item", "no list", "no filter", "states", "code", "ids", "channel", "no url"],
)
@pytest.mark.parametrize("api", [Ledger, sync.Ledger], ids=["aio", "sync"])
async def test_what_is_refused(url, api, refused, message):
    """LG-9: what would pass for an empty list, for the letters of a text, or for a file that does not last."""
    ledger = await did(api.open(url))
    try:
        with pytest.raises((OptionError, TypeError), match=message):
            await did(refused(ledger))
        assert await did(ledger.find()) == []
    finally:
        await closed(ledger)


async def test_a_connect_that_returns_no_channel(url):
    """LG-10: `deliver` of the threads' ledger says what its function must return."""
    with sync.Ledger.open(url) as ledger, pytest.raises(TypeError, match=r"connect=<int>: expected a function"):
        ledger.deliver(lambda: 5)


def preparing_by(settings, config=None):
    """Return a ledger that only prepares operations, so that nothing is stored."""
    return Ledger(open_store(":memory:", settings), settings, config=config)


PREPARING = preparing_by(replace(SETTINGS, metadata=("x", "x-bin"), max_request_bytes=100))


async def test_a_stub_says_all(stub):
    """LG-9: given a stub's method, `submit` takes target, path and serializer from it."""
    prepared = PREPARING.prepared(stub.Unary, Message(text="a"))

    assert (prepared.target, prepared.method) == ("shop.example:443", "/echo.v1.Echo/Unary")
    assert Message.FromString(prepared.request).text == "a"


async def test_what_submit_refuses(stub):
    """LG-9: `submit` refuses streams, stubs of other channels, requests that are not bytes, and impossible targets."""
    plain = grpc.aio.insecure_channel("127.0.0.1:1")
    cases = [
        ((stub.Down, Message()), TypeError, "is a unary_stream method: only unary-unary methods"),
        ((stub.Up, Message()), TypeError, "stream_unary"),
        ((EchoStub(plain).Unary, Message()), TypeError, "expected a unary-unary method of a stub on a channel of"),
        ((stub.Unary,), TypeError, "takes one request, not 0"),
        (("t", "/m/m"), TypeError, "or target, method and bytes"),
        (("t", "/m/m", "text"), TypeError, "request=<str>: expected bytes"),
        (("t", "m", b""), OptionError, "method='m': expected a path"),
        (("", "/m/m", b""), OptionError, "target="),
        (("http://shop", "/m/m", b""), OptionError, "target="),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            PREPARING.prepared(*given)
    with pytest.raises(TypeError, match=r"^prepared\(\) got an unexpected keyword argument 'key'"):
        PREPARING.prepared("t", "/m/m", b"", key="a")
    await plain.close()


async def test_limits(ledger):
    """LG-11: exceeding a limit on request size or rows raises an error that names the limit; nothing is stored."""
    with pytest.raises(LedgerLimitError, match=r"request=101 bytes: expected at most max_request_bytes \(100\)"):
        await ledger.submit("t", "/m/m", b"x" * 101)
    await ledger.submit_many([ledger.prepared("t", "/m/m", b"x") for _ in range(4)])
    with pytest.raises(LedgerLimitError, match=r"no room for 2 more: 4 of at most 5 operations \(max_rows\)"):
        await ledger.submit_many([ledger.prepared("t", "/m/m", b"x") for _ in range(2)])
    [first, *_] = await ledger.find()
    await ledger.discard(first.id)
    await ledger.submit_many([ledger.prepared("t", "/m/m", b"x") for _ in range(2)])

    assert (await ledger.queue()).length == 5
    assert await ledger.submit_many([]) == []


UNSENDABLE = [("x-bin", "secret"), ("x", b"secret"), ("x", "secret\xe9"), ("x", "secret\n"), ("x", 7)]
REFUSED = [
    *(({"idempotency_key": key}, "idempotency_key=") for key in ("", "ä", "a\nb", "x" * 2000, 7)),
    *(({"order_key": key}, "order_key=") for key in ("", "x" * 1025, 7, "a\x00", "\ud800")),
    ({"order_key": "銀" * 683}, "order_key=.* 1024 characters, at most 2048 bytes in UTF-8"),
    (
        {"metadata": [("authorization", "Bearer secret")]},
        "metadata='authorization': expected a key that does not hold credentials, which are never stored",
    ),
    ({"metadata": [("te", "trailers")]}, "metadata='te': expected a key that reaches the server"),
    (
        {"metadata": [("tenant", "a")]},
        r"metadata='tenant': expected a key that the ledger's settings allow \(x, x-bin\)",
    ),
    *(({"metadata": [pair]}, f"metadata='{pair[0]}': expected a value of") for pair in UNSENDABLE),
    ({"policy": "standrad"}, "did you mean 'standard'"),
    ({"policy": "hedge: 50ms, attempts: 3"}, "only for the calls of a channel"),
    ({"policy": HedgingPolicy(hedging_delay=0.05, max_attempts=3)}, "never has two attempts"),
]


@pytest.mark.parametrize(("how", "message"), REFUSED)
def test_arguments_that_are_refused(how, message):
    """LG-1, LG-10, LG-11, HG-9: invalid keys, metadata and policies are refused; no error shows a metadata value."""
    with pytest.raises(OptionError, match=message) as caught:
        PREPARING.prepared("t", "/m/m", b"", **how)

    assert "secret" not in str(caught.value)


def test_what_is_prepared_shows_no_payload():
    """RT-11, LG-11: the `repr` of a prepared submission contains neither its request nor its metadata."""
    prepared = PREPARING.prepared("t", "/m/m", b"secret", metadata=[("x", "secret")], idempotency_key="k")

    assert "secret" not in repr(prepared)
    assert repr(prepared).startswith(f"Submission(id='{prepared.id}', target='t', method='/m/m', policy=")


def test_metadata_count():
    """LG-11: `max_request_bytes` limits the total size of request and metadata."""
    PREPARING.prepared("t", "/m/m", b"x" * 50, metadata=[("x", "y" * 49)])
    with pytest.raises(LedgerLimitError, match=r"request and metadata=101 bytes: expected at most max_request_b"):
        PREPARING.prepared("t", "/m/m", b"x" * 50, metadata=[("x", "y" * 50)])
