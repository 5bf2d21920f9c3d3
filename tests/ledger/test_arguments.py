"""Arguments of a wrong type or out of range: each is an error that names them, and nothing is lost."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from dataclasses import fields, replace
from functools import partial

import pytest

from grpc_backoff import OptionError, aio
from grpc_backoff.ledger import Filter, Ledger, LedgerError, LedgerHooks, LedgerSettings, LedgerStateError, sync
from grpc_backoff.ledger.inbox import AioInbox, SyncInbox
from tests.echo import EchoStub
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
