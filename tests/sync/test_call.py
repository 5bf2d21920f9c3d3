"""Retried calls of all kinds: how often they are made, what they send, what they end with."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

import grpc_backoff
from grpc_backoff import CallExhausted, CallRetried, CallSucceeded, Reason, RetriesExhaustedError, RetryHooks
from grpc_backoff.sync import multicallables
from grpc_backoff.sync.pump import needs_pump
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

POLICY = "retry: 3, delay: 10ms"
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


WAYS = {
    "blocking": lambda stub: stub.Unary(Message(text="a")),
    "future": lambda stub: stub.Unary.future(Message(text="a")).result(20),
}


def each(*texts):
    return iter([Message(text=text) for text in texts])


CALLS = {
    "unary_unary": lambda stub: stub.Unary(Message(text="a"), timeout=20).text,
    "with_call": lambda stub: stub.Unary.with_call(Message(text="a"), timeout=20)[0].text,
    "future": lambda stub: stub.Unary.future(Message(text="a"), timeout=20).result(20).text,
    "unary_stream": lambda stub: "".join(each.text for each in stub.Down(Message(text="a", count=1), timeout=20)),
    "stream_unary": lambda stub: stub.Up(each("a"), timeout=20).text,
    "stream_unary_future": lambda stub: stub.Up.future(each("a"), timeout=20).result(20).text,
    "stream_stream": lambda stub: "".join(each.text for each in stub.Both(each("a"), timeout=20)),
}


@pytest.fixture(params=CALLS)
def call(request):
    return CALLS[request.param]


@pytest.fixture
def events():
    return []


@pytest.fixture
def channel(server, events):
    with grpc_backoff.insecure_channel(server.target, retry=POLICY, listeners=[events.append]) as channel:
        yield channel


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_retried(call, channel, server, events):
    """RT-2, RT-10: an attempt that fails is made again, with the same requests, and says which it is."""
    server.servicer.fails = 2
    assert call(EchoStub(channel)) == "a"
    previous = [metadata.get("grpc-previous-rpc-attempts") for metadata in server.servicer.metadata]
    assert previous == [None, "1", "2"]
    assert server.servicer.got[-1] == ["a"]
    until(lambda: of(CallSucceeded, events))
    retried = of(CallRetried, events)
    assert [(event.attempt, event.code) for event in retried] == [(1, "UNAVAILABLE"), (2, "UNAVAILABLE")]
    assert len({event.call_id for event in retried}) == 1


def test_exhausted(call, channel, server, events):
    """RT-6: the error says how often it was tried; it is of both kinds, and its cause is the last attempt's."""
    server.servicer.fails = 9
    with pytest.raises(RetriesExhaustedError) as caught:
        call(EchoStub(channel))
    error = caught.value
    assert isinstance(error, grpc._channel._InactiveRpcError)
    assert (error.code(), error.attempts, error.reason) == (UNAVAILABLE, 4, Reason.ATTEMPTS)
    assert error.details().startswith("as told; gave up: no attempts are left (4 attempts in ")
    assert error.__cause__.details() == "as told"
    until(lambda: of(CallExhausted, events))


def test_not_retried(channel, server):
    """RT-2: an error that trying again does not mend is made once."""
    with pytest.raises(grpc.RpcError) as caught:
        EchoStub(channel).Unary(Message(text="abort"))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert len(server.servicer.got) == 1


def test_committed(channel, server):
    """RT-8: a stream of which a response has reached the caller is not made again."""
    call = EchoStub(channel).Down(Message(text="then fail", count=2))
    assert [next(call).text, next(call).text] == ["then fail", "then fail"]
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert (caught.value.code(), caught.value.details()) == (UNAVAILABLE, "behind the responses")
    assert call.code() is UNAVAILABLE
    assert len(server.servicer.got) == 1


def test_too_much_to_keep(server):
    """RT-8: a call whose requests pass the buffer is held to its attempt."""
    options = [("grpc.per_rpc_retry_buffer_size", 5)]
    with grpc_backoff.insecure_channel(server.target, options, retry=POLICY) as channel:
        for method in (EchoStub(channel).Up, lambda requests: EchoStub(channel).Up.future(requests).result(20)):

            def requests():
                yield from each("aaaa", "bbbb")
                until(lambda: server.servicer.got and server.servicer.got[-1] == ["aaaa", "bbbb"])
                server.servicer.fails = 1
                yield from each("cccc")

            server.servicer.got.clear()
            with pytest.raises(grpc.RpcError) as caught:
                method(requests())
            assert caught.value.details() == "as told"
            assert len(server.servicer.got) == 1


def test_the_deadline(channel, server):
    """RT-7: the wait between two attempts is within the call's deadline; one that is too long fails at once."""
    server.servicer.fails = 9
    began = time.monotonic()
    for way in (
        lambda call, *how, **named: call(*how, **named),
        lambda call, *how, **named: call.future(*how, **named),
    ):
        method = grpc_backoff.retrying(EchoStub(channel).Unary, "retry: 3, delay: 100s")
        with pytest.raises(RetriesExhaustedError) as caught:
            way(method, Message(text="a"), timeout=5).result(20)
        assert caught.value.reason is Reason.DEADLINE
    assert time.monotonic() - began < 5


def test_one_timeout_for_each_attempt(channel, server):
    """RT-7: `timeout` of a policy bounds each attempt, which is then retried."""
    method = grpc_backoff.retrying(EchoStub(channel).Unary, "retry: 1, delay: 10ms, timeout: 200ms")
    for way in (method, lambda request: method.future(request).result(20)):
        server.servicer.got.clear()
        with pytest.raises(RetriesExhaustedError) as caught:
            way(Message(text="hang"))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(server.servicer.got) == 2


def test_cancelled_between_two_attempts(channel, server):
    """TH-3: a future that sleeps is cancelled from another thread."""
    server.servicer.fails = 9
    future = grpc_backoff.retrying(EchoStub(channel).Unary, "retry: 3, delay: 60s").future(Message(text="a"))
    until(lambda: server.servicer.fails == 8)
    time.sleep(0.05)
    threading.Thread(target=future.cancel).start()
    with pytest.raises(grpc.FutureCancelledError):
        future.result(20)


@pytest.mark.parametrize("way", ["blocking", "future"])
def test_closed_between_two_attempts(server, way):
    """CB-10: calls that sleep between two attempts end with the close."""
    server.servicer.fails = 9
    with grpc_backoff.insecure_channel(server.target, retry="retry: 3, delay: 60s") as channel:
        stub = EchoStub(channel)
        threading.Thread(
            target=lambda: (until(lambda: server.servicer.fails == 8), time.sleep(0.05), channel.close())
        ).start()
        with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)) as caught:
            WAYS[way](stub)
        if way == "blocking":
            assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_a_restart_amid_retries():
    """RT-2: a server that is killed and comes back is all that a retried call needs; in every kind."""
    with (
        place() as server,
        grpc_backoff.insecure_channel(
            server.target, [("grpc.initial_reconnect_backoff_ms", 50)], retry="retry: 100, delay: 50ms"
        ) as channel,
    ):
        stub = EchoStub(channel)
        for make in CALLS.values():
            assert make(stub) == "a"
            server.kill()
            threading.Timer(0.2, server.start).start()
            assert make(stub) == "a"


@pytest.mark.parametrize("way", ["blocking", "future"])
def test_hooks(server, way):
    """RT-4, RT-6: renewed credentials are sent with the next attempt; the end is told."""
    told = []
    hooks = RetryHooks(
        refresh_credentials=lambda failed: [("authorization", f"new {failed.code.name}")], on_exhausted=told.append
    )

    class Guarded(type(server.servicer)):
        def Unary(self, request, context):  # noqa: N802
            self._begin(context)
            if "authorization" not in self.metadata[-1]:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
            context.abort(UNAVAILABLE, "not now")

    with (
        place(Guarded()) as guarded,
        grpc_backoff.insecure_channel(guarded.target, retry="retry: 1, delay: 10ms", retry_hooks=hooks) as channel,
    ):
        stub = EchoStub(channel)
        with pytest.raises(RetriesExhaustedError):
            WAYS[way](stub)
        assert guarded.servicer.metadata[-1]["authorization"] == "new UNAUTHENTICATED"
    assert [(failed.attempt, failed.reason) for failed in told] == [(2, Reason.ATTEMPTS)]
    assert told[0].request == Message(text="a").SerializeToString()


def test_retrying(server):
    """BP-2: one call with another policy than its channel's."""
    with grpc_backoff.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        server.servicer.fails = 1
        with pytest.raises(grpc.RpcError):
            stub.Unary(Message(text="a"))
        server.servicer.fails = 2
        assert grpc_backoff.retrying(stub.Unary, POLICY)(Message(text="a")).text == "a"
    with pytest.raises(TypeError, match="expected a method of a stub on a grpc_backoff channel"):
        grpc_backoff.retrying(len, POLICY)


def test_budget(server):
    """RT-9: while more than half of the budget is spent nothing is retried, in whichever thread."""
    budget = grpc_backoff.RetryBudget(max_tokens=4, token_ratio=0.1)
    with grpc_backoff.insecure_channel(server.target, retry=POLICY, retry_budget=budget) as channel:
        server.servicer.fails = 9
        with pytest.raises(RetriesExhaustedError) as caught:
            EchoStub(channel).Unary(Message(text="a"))
        assert caught.value.reason is Reason.BUDGET
        assert len(server.servicer.got) == 2


def test_cancel_while_an_attempt_is_being_made(server, monkeypatch):
    """TH-3, TH-6: an attempt that is on the wire, and not known yet to the call, is cancelled too."""
    made, cancelled, make = threading.Event(), threading.Event(), multicallables._Attempts.make

    def slowly(*how):
        attempt = make(*how)
        made.set()
        cancelled.wait(20)
        return attempt

    monkeypatch.setattr(multicallables._Attempts, "make", slowly)
    with grpc_backoff.insecure_channel(server.target) as channel:
        future = EchoStub(channel).Unary.future(Message(text="hang"))
        assert made.wait(20)
        assert server.servicer.hanging.wait(20)
        assert future.cancel()
        cancelled.set()
        assert server.servicer.cancelled.wait(10)


def test_futures_and_streams_need_no_threads():
    """TH-4: on a READY channel, with retries for every call, only threads of grpcio's own come with them."""
    needed = {"grpc-backoff", "grpc-backoff-pump"} if needs_pump() else {"grpc-backoff"}
    with place() as server, grpc_backoff.insecure_channel(server.target, retry="retry: 3, delay: 10ms") as channel:
        grpc.channel_ready_future(channel).result(20)
        stub = EchoStub(channel)
        until(lambda: ours() == needed)
        futures = [stub.Unary.future(Message(text="hang")) for _ in range(20)]
        streams = [stub.Both(iter([Message(text="a")])) for _ in range(20)]
        assert [next(stream).text for stream in streams] == ["a"] * 20
        assert server.servicer.hanging.wait(20)
        assert ours() == needed
        for call in (*futures, *streams):
            call.cancel()


def ours():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("grpc-backoff")}
