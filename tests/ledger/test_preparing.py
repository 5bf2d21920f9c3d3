"""Preparing operations: what `submit` accepts and refuses, policies and limits."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from grpc_backoff import HedgingPolicy, OptionError, PolicyWarning, parse_policy
from grpc_backoff.config.file import read_config
from grpc_backoff.ledger import Ledger, LedgerLimitError
from grpc_backoff.ledger.parameters import policy_text
from grpc_backoff.ledger.stores.urls import open_store
from grpc_backoff.policy.presets import RETRY_PRESETS
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


def preparing_by(settings, config=None):
    """Return a ledger that only prepares operations, so that nothing is stored."""
    return Ledger(open_store(":memory:", settings), settings, config=config)


PREPARING = preparing_by(replace(SETTINGS, metadata=("x", "x-bin"), max_request_bytes=100))


@pytest.fixture
def filed(tmp_path):
    """A function that returns what prepares operations by the settings in a file."""

    def read(text):
        file = tmp_path / "backoff.toml"
        file.write_text(text)
        config = read_config(file)
        return preparing_by(config.ledger_settings().policy, config)

    return read


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


async def test_policies(filed, stub):
    """LG-1, LG-14: a policy comes from the argument, else `[methods]`, else `[ledger]`, else the library's default."""
    mine = replace(RETRY_PRESETS["steps"], max_attempts=7)
    preparing = filed(FILE)
    assert preparing.settings.lease == 60.0
    policies = ["retry: 1, delay: 5s", mine, "aggressive", None]
    texts = [preparing.prepared("t", "/m/m", b"", policy=policy).policy for policy in policies]
    texts.append(preparing.prepared(stub.Unary, Message()).policy)
    read = [preparing._policies.of(text) for text in texts]

    assert texts[:4] == ["retry: 1, delay: 5s", policy_text(mine), "aggressive", "careful"]
    assert parse_policy(texts[1]) == mine
    assert [policy.max_attempts for policy in read] == [2, 7, 5, 5, 3]
    assert (read[3].backoff.cap, read[4].nominal(1)) == (10.0, 3.0)
    assert PREPARING.prepared("t", "/m/m", b"").policy == "durable"


async def test_methods_are_for_calls(filed, stub):
    """LG-14: policies in `[methods]` apply to operations only if `[ledger]` says so."""
    preparing = filed(FILE.replace("methods = true", ""))

    assert preparing.prepared(stub.Unary, Message()).policy == "careful"


def test_an_unlimited_policy():
    """BP-2: a policy with neither a deadline nor a limited number of attempts is warned of, as for calls."""
    with pytest.warns(PolicyWarning, match="max_attempts=unlimited: expected a deadline"):
        PREPARING.prepared("t", "/m/m", b"", policy="steps")
