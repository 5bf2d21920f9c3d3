"""CH-1, TH-1: interceptors on both APIs, and how they see calls that wait for a connection or are retried.

Each interceptor is a generator function; `tests/both_apis/interceptors.py` says how it runs on each API.
"""

from __future__ import annotations

import time

import grpc
import grpc.aio
import pytest

from grpc_backoff import Reason, RetriesExhaustedError
from tests.both_apis.api import RETRY
from tests.both_apis.interceptors import go_on, looking, noting
from tests.both_apis.tries import fails, hangs
from tests.echo import Message
from tests.sync.service import until

CODE = grpc.StatusCode
UNARY, NOWHERE = "/echo.v1.Echo/Unary", "/echo.v1.Echo/Nowhere"
OLD = not hasattr(grpc.aio._channel.Channel, "_register_call")


@pytest.fixture
def opened(in_phase, server):
    """Return a function that opens a channel to the server with given interceptors, in the phase under test."""
    return lambda *interceptors: in_phase(server.target, interceptors=interceptors)


# On every kind of channel.


def test_chain(opened, kind, way, server):
    """CH-1, TH-1: each interceptor of the call runs once, in order, and its metadata reaches the server."""
    noted = []
    with opened(noting(noted, "one", kind.metadata), noting(noted, "two", kind.metadata)) as channel:
        outcome = channel.begin(way, ["a", "b"], metadata=(("own", "x"),)).outcome()
    assert (outcome.code, outcome.texts) == (CODE.OK, ["a", "b"] if way == "Both" else ["ab"])
    path = kind.paths[0](f"/echo.v1.Echo/{way.partition('.')[0]}")
    assert noted == [("one", path), ("two", path)]
    assert [value for key, value in server.servicer.pairs[0] if key == "through"] == ["one", "two"]
    assert ("own", "x") in server.servicer.pairs[0]


def test_another_method(opened, kind):
    """CH-1, TH-1: an interceptor may change the method; it sees the name as bytes on asyncio, as text on threads."""

    def elsewhere(continuation, details, request):
        assert details.method == kind.paths[0](NOWHERE)
        return (yield continuation(details._replace(method=kind.paths[0](UNARY)), request))

    # The method is not a registered one, because grpc.aio before 1.8x ignores a new name for a registered method.
    with opened(elsewhere) as channel:
        assert channel.begin(path=NOWHERE).outcome().texts == ["a"]


def test_an_answer_without_a_call(kind):
    """CH-1, TH-1: an interceptor may return a response itself, even if there is no server."""

    def answers(_continuation, _details, _request):
        return Message(text="cached")
        yield

    with kind.channel("127.0.0.1:1", interceptors=[answers]) as channel:
        assert channel.begin().outcome().texts == ["cached"]


def test_several_calls(opened, server):
    """CH-1, TH-1: an interceptor may make several calls; the caller gets the one that the interceptor returns."""

    def retries(continuation, details, _request):
        for text in ("abort", "fine"):
            call = yield continuation(details, Message(text=text))
            if (yield call.code()) is CODE.OK:
                break
        return call

    with opened(retries) as channel:
        assert channel.begin().outcome().texts == ["fine"]
    assert server.servicer.got == [["abort"], ["fine"]]


def test_arguments_are_seen(opened):
    """CH-1, TH-1: interceptors see the caller's `timeout` and `wait_for_ready` and may change them."""
    seen = []

    def shortens(continuation, details, request):
        seen.append((details.timeout, details.wait_for_ready))
        return (yield continuation(details._replace(timeout=0.2), request))

    with opened(shortens) as channel:
        assert (
            channel.begin("Unary", ["hang"], timeout=60, wait_for_ready=True).outcome().code is CODE.DEADLINE_EXCEEDED
        )
    assert seen == [(60, True)]


def test_one_that_raises(opened, kind):
    """CH-1, TH-1: an exception from an interceptor is raised to the caller."""
    if kind.name == "asyncio" and OLD:
        pytest.skip("grpcio raised it twice")

    def raises(_continuation, _details, _request):
        yield 1 / 0

    with opened(raises) as channel, pytest.raises(ZeroDivisionError):
        channel.begin().outcome()


def test_status_of_an_error(opened, way):
    """CH-1, TH-1: an interceptor sees the status of a failed call, and the caller gets the error."""
    seen = []
    with opened(looking(seen)) as channel:
        outcome = channel.begin(way, ["abort"]).outcome()
    assert (outcome.code, outcome.details) == (CODE.FAILED_PRECONDITION, "not now")
    assert isinstance(outcome.error, grpc.RpcError)
    assert seen == [CODE.FAILED_PRECONDITION]


def test_cancel(opened, cancellable, server):
    """CH-1, TH-1: cancelling an intercepted call cancels it on the server."""
    with opened(go_on) as channel:
        call = channel.begin(cancellable, ["hang"])
        assert server.servicer.hanging.wait(20)
        assert call.cancel()
        assert call.outcome().code is CODE.CANCELLED
        assert server.servicer.cancelled.wait(20)
        assert call.cancelled()


def test_no_connection(kind, way):
    """CH-3: without a connection, an interceptor sees UNAVAILABLE once for each call."""
    seen = []
    with kind.channel("127.0.0.1:1", interceptors=[looking(seen)]) as channel:
        for _ in range(2):
            outcome = channel.begin(way).outcome()
            assert outcome.code is CODE.UNAVAILABLE
            assert isinstance(outcome.error, grpc.RpcError)
    assert seen == [CODE.UNAVAILABLE] * 2


def test_a_call_from_an_interceptor(opened, kind, server):
    """CH-1, TH-1: an interceptor may first make a call on another channel that also has interceptors."""
    noted = []
    with opened(noting(noted, "inner", kind.metadata)) as other:

        def asks(continuation, details, _request):
            asked = yield other.stub.Unary(Message(text="first"))
            return (yield continuation(details, Message(text=asked.text + " then")))

        with opened(asks) as channel:
            assert channel.begin().outcome().texts == ["first then"]
    assert server.servicer.got == [["first"], ["first then"]]
    assert len(noted) == 1


# With retries: an interceptor sees each call once, with all its attempts.


def test_a_call_is_seen_once(trying, ours, way):
    """CH-1: an interceptor runs once per call, adds metadata to every attempt, and sees waits as part of the call."""
    noted, seen = [], []

    def watches(continuation, details, request):
        began = time.monotonic()
        call = yield continuation(details, request)
        call.add_done_callback(lambda _: seen.append(time.monotonic() - began))
        return call

    chain = [noting(noted, "one", ours.metadata), noting(noted, "two", ours.metadata), watches]
    with trying(fails(), fails(1), retry="retry: 3, delay: 50ms, jitter: none", interceptors=chain) as (
        service,
        channel,
    ):
        outcome = channel.begin(way, ["a", "b"], metadata=(("own", "x"),)).outcome()
        assert (outcome.code, outcome.texts) == (CODE.OK, ["a", "b"] if way == "Both" else ["ab"])
        until(lambda: seen)
    assert [name for name, _ in noted] == ["one", "two"]
    assert len(seen) == 1
    assert seen[0] >= 0.095
    assert [metadata["own"] for metadata in service.metadata] == ["x"] * 3
    assert [metadata["through"] for metadata in service.metadata] == ["two"] * 3
    assert service.previous == [None, "1", "2"]


def test_the_end_is_what_they_see(trying, way):
    """RT-6: an interceptor sees the code of the last attempt, and the caller gets a `RetriesExhaustedError`."""
    seen = []
    with trying(*[fails()] * 4, interceptors=[looking(seen)]) as (service, channel):
        error = channel.begin(way).outcome().error
    assert isinstance(error, RetriesExhaustedError)
    assert (error.attempts, error.reason) == (4, Reason.ATTEMPTS)
    assert seen == [CODE.UNAVAILABLE]
    assert len(service.got) == 4


@pytest.mark.parametrize(("retried", "attempts"), [(UNARY, 2), (NOWHERE, 1)])
def test_the_policy_of_another_method(trying, ours, retried, attempts):
    """BP-2: if an interceptor changes the method of a call, the policy of the new method applies."""
    for named in ours.paths:

        def elsewhere(continuation, details, request, named=named):
            return (yield continuation(details._replace(method=named(UNARY)), request))

        with trying(fails(), retry={retried.removeprefix("/"): RETRY}, interceptors=[elsewhere]) as (service, channel):
            outcome = channel.begin(path=NOWHERE).outcome()
        assert outcome.code is (CODE.OK if attempts == 2 else CODE.UNAVAILABLE)
        assert type(outcome.error) is (type(None) if attempts == 2 else ours.error)
        assert len(service.got) == attempts


def test_another_timeout(trying, way):
    """RT-7: a timeout set by an interceptor bounds the call as a whole."""

    def shortens(continuation, details, request):
        assert details.timeout == 60
        return (yield continuation(details._replace(timeout=0.3), request))

    with trying(interceptors=[shortens]) as (service, channel):
        channel.ready()
        for _ in range(20):  # on a busy machine, the first attempt may last until the deadline
            service.behaviours[:] = [fails(), hangs]
            error = channel.begin(way, timeout=60).outcome().error
            if getattr(error, "attempts", 1) > 1:
                break
        assert (error.code(), error.attempts) == (CODE.DEADLINE_EXCEEDED, 2)


def test_a_retrying_interceptor(trying, way):
    """RT-1: an interceptor that retries makes new calls, each with all of its attempts, so the attempts multiply."""

    def insists(continuation, details, request):
        for _ in range(3):
            call = yield continuation(details, request)
            if (yield call.code()) is CODE.OK:
                break
        return call

    with trying(*[fails()] * 6, retry="retry: 1, delay: 10ms", interceptors=[insists]) as (service, channel):
        assert channel.begin(way).outcome().code is CODE.UNAVAILABLE
    assert service.previous == [None, "1"] * 3
