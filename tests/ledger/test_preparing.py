"""Preparing operations: what `submit` accepts and refuses, policies and limits."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from grpc_backoff import HedgingPolicy, OptionError, PolicyWarning, parse_policy
from grpc_backoff.ledger import (
    Ledger,
    LedgerLimitError,
)
from grpc_backoff.ledger.parameters import policy_text
from grpc_backoff.policy.presets import RETRY
from tests.echo import EchoStub, Message
from tests.ledger.conftest import SETTINGS

FILE = """
[policies.careful]
preset = "standard"
max_delay = "10s"

[methods."echo.v1.Echo"]
retry = 2
delay = 3

[ledger]
policy = "careful"
lease = "1m"
methods = true
"""


async def test_a_stub_says_all(ledger, stub):
    """LG-9: given a stub's method, `submit` takes target, path and serializer from it."""
    told = await ledger.submit(stub.Unary, Message(text="a"))
    operation = await ledger.get(told.id)

    assert (operation.target, operation.method) == ("shop.example:443", "/echo.v1.Echo/Unary")
    assert Message.FromString(operation.request).text == "a"


async def test_what_submit_refuses(ledger, stub):
    """LG-9: `submit` refuses streams, stubs of other channels and requests that are not bytes."""
    plain = grpc.aio.insecure_channel("127.0.0.1:1")
    cases = [
        ((stub.Down, Message()), TypeError, "is a unary_stream method: only unary-unary methods"),
        ((stub.Up, Message()), TypeError, "stream_unary"),
        ((EchoStub(plain).Unary, Message()), TypeError, "expected a unary-unary method of a stub on a channel of"),
        ((stub.Unary,), TypeError, "takes one request, not 0"),
        (("t", "/m/m"), TypeError, "or target, method and bytes"),
        (("t", "/m/m", "text"), TypeError, "request=str: expected bytes"),
        (("t", "m", b""), OptionError, "method='m': expected a path"),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            await ledger.submit(*given)
    await plain.close()
    assert await ledger.find() == []


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


async def test_metadata_that_is_not_allowed(ledger):
    """LG-11: metadata whose key the settings do not allow is refused, and the error does not show its value."""
    with pytest.raises(OptionError, match="metadata='authorization': expected a key that") as caught:
        await ledger.submit("t", "/m/m", b"", metadata=[("authorization", "Bearer secret")])

    assert "secret" not in str(caught.value)
    assert await ledger.find() == []


@pytest.mark.parametrize(
    ("key", "value"), [("x-bin", "secret"), ("x", b"secret"), ("x", "secret\xe9"), ("x", "secret\n"), ("x", 7)]
)
async def test_metadata_that_cannot_be_sent(url, key, value):
    """LG-11: `submit` refuses metadata that gRPC would not send, because every attempt with it would fail."""
    async with await Ledger.open(url, settings=replace(SETTINGS, metadata=("x", "x-bin"))) as ledger:
        with pytest.raises(OptionError, match=f"metadata='{key}': expected a value of") as caught:
            await ledger.submit("t", "/m/m", b"", metadata=[(key, value)])
        assert "secret" not in str(caught.value)
        assert await ledger.find() == []


async def test_what_is_prepared_shows_no_payload(url):
    """RT-11, LG-11: the `repr` of a prepared submission contains neither its request nor its metadata."""
    async with await Ledger.open(url, settings=replace(SETTINGS, metadata=("x",))) as ledger:
        prepared = ledger.prepared("t", "/m/m", b"secret", metadata=[("x", "secret")], idempotency_key="k")

    assert "secret" not in repr(prepared)
    assert repr(prepared).startswith(f"Submission(id='{prepared.id}', target='t', method='/m/m', policy=")


async def test_metadata_count(url):
    """LG-11: `max_request_bytes` limits the total size of request and metadata."""
    limited = replace(SETTINGS, metadata=("x",), max_request_bytes=100)
    async with await Ledger.open(url, settings=limited) as ledger:
        await ledger.submit("t", "/m/m", b"x" * 50, metadata=[("x", "y" * 49)])
        with pytest.raises(LedgerLimitError, match=r"request and metadata=101 bytes: expected at most max_request_b"):
            await ledger.submit("t", "/m/m", b"x" * 50, metadata=[("x", "y" * 50)])


@pytest.mark.parametrize("key", ["", "ä", "a\nb", "x" * 2000, 7])
async def test_a_key_that_cannot_be_sent(ledger, key):
    """LG-10: an idempotency key that could not be sent as metadata is refused."""
    with pytest.raises(OptionError, match="idempotency_key="):
        await ledger.submit("t", "/m/m", b"", idempotency_key=key)


async def test_policies(url, tmp_path, stub):
    """LG-1, LG-14: a policy comes from the argument, else `[methods]`, else `[ledger]`, else the library's default."""
    file = tmp_path / "backoff.toml"
    file.write_text(FILE)
    mine = replace(RETRY["steps"], max_attempts=7)
    async with await Ledger.open(url, config=file) as ledger:
        assert ledger.settings.lease == 60.0
        ids = [
            (await ledger.submit("t", "/m/m", b"", policy="retry: 1, delay: 5s")).id,
            (await ledger.submit("t", "/m/m", b"", policy=mine)).id,
            (await ledger.submit("t", "/m/m", b"", policy="aggressive")).id,
            (await ledger.submit(stub.Unary, Message())).id,
            (await ledger.submit("t", "/m/m", b"")).id,
        ]
        texts = [(await ledger.get(id_)).policy for id_ in ids]
        policies = [ledger.policy_of(text) for text in texts]

    assert texts[:3] == ["retry: 1, delay: 5s", policy_text(mine), "aggressive"]
    assert texts[4] == "careful"
    assert parse_policy(texts[1]) == mine
    assert [policy.max_attempts for policy in policies] == [2, 7, 5, 3, 5]
    assert (policies[3].nominal(1), policies[4].backoff.cap) == (3.0, 10.0)
    async with await Ledger.open(url) as ledger:
        assert (await ledger.get((await ledger.submit("t", "/m/m", b"")).id)).policy == "durable"


async def test_a_policy_that_is_none(ledger):
    """LG-1: `submit` refuses an unknown policy, and the error suggests the nearest name."""
    with pytest.raises(OptionError, match="did you mean 'standard'"):
        await ledger.submit("t", "/m/m", b"", policy="standrad")


async def test_the_default_outlives_a_night(ledger):
    """LG-7: by default, eight hours of UNAVAILABLE or of a server's exceptions do not end an operation."""
    for code, state in (
        ("UNAVAILABLE", "waiting_for_retry"),
        ("UNKNOWN", "waiting_for_retry"),
        ("NOT_FOUND", "failed"),
    ):
        told = await ledger.submit("t", "/m/m", code.encode())
        for _ in range(60):  # ten minutes each, at the end
            recorded = await ledger.record_failure(told.id, code)
        assert recorded.state.value == state


async def test_methods_are_for_calls(url, tmp_path, stub):
    """LG-14: policies in `[methods]` apply to operations only if `[ledger]` says so."""
    file = tmp_path / "backoff.toml"
    file.write_text(FILE.replace("methods = true", ""))
    async with await Ledger.open(url, config=file) as ledger:
        assert (await ledger.get((await ledger.submit(stub.Unary, Message())).id)).policy == "careful"


async def test_an_unlimited_policy(ledger):
    """BP-2: a policy with neither a deadline nor a limited number of attempts is warned of, as for calls."""
    with pytest.warns(PolicyWarning, match="max_attempts=unlimited: expected a deadline"):
        await ledger.submit("t", "/m/m", b"", policy="steps")


async def test_an_empty_target(ledger):
    """LG-9: a target that no channel could have is refused."""
    for target in ("", "http://shop"):
        with pytest.raises(OptionError, match="target="):
            await ledger.submit(target, "/m/m", b"")


@pytest.mark.parametrize(
    "policy", ["hedge: 50ms, attempts: 3", HedgingPolicy(hedging_delay=0.05, max_attempts=3)], ids=["text", "object"]
)
async def test_hedging_is_refused(ledger, policy):
    """HG-9: a ledger never has two attempts of an operation at once."""
    with pytest.raises(OptionError, match=r"only for the calls of a channel|never has two attempts"):
        await ledger.submit("t", "/m/m", b"", policy=policy)
