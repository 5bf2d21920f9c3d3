"""SB-1 to SB-7: subscriptions on both APIs and real servers.

`tests/decide/calls/test_subscription_machine.py` has the pure tests.
"""

from __future__ import annotations

import contextlib
import threading
import time

import grpc
import pytest

import grpc_backoff
import grpc_backoff.aio
from grpc_backoff import (
    CallExhausted,
    CallRetried,
    Gap,
    OptionError,
    RetriesExhaustedError,
    RetryHooks,
    StreamEnded,
    StreamResumed,
)
from tests.both_apis.tries import Tries, echo
from tests.both_apis.wire import Streams, cut
from tests.echo import Message
from tests.sync.service import Echo, front, place, until

QUICK = "delay: 1ms, jitter: none"
CODE = grpc.StatusCode


class Numbers(Echo):
    """Streams numbers from the request's count on and ends each stream as the script says.

    A script's entry is how many numbers a stream delivers, and the code that it ends with: OK for a clean end, None to
    wait. After the script's end, a stream delivers five and waits.
    """

    def __init__(self, *script):
        super().__init__()
        self.script = list(script)
        self.from_ = []
        self.at = []
        self.sent = 0

    def Down(self, request, context):  # noqa: N802
        self._begin(context)
        self.from_.append(request.count)
        self.at.append(time.monotonic())
        many, code = self.script.pop(0) if self.script else (5, None)
        for number in range(request.count, request.count + many):
            self.sent += 1
            yield Message(text="x" * len(request.text), count=number)
        if code is None:
            self._hang(context)
        elif code is not CODE.OK:
            context.abort(code, "as told")

    def Both(self, request_iterator, context):  # noqa: N802
        yield from self.Down(next(request_iterator), context)


def following(last, _request):
    return Message(count=last.count + 1)


class Reader:
    """A subscription of either API, read with blocking functions."""

    def __init__(self, channel, method="Down", request=None, **how):
        self._loop = getattr(channel, "_loop", None)
        self._subscribe = grpc_backoff.aio.subscribe if self._loop else grpc_backoff.subscribe
        how = {"policy": QUICK, "resume": following} | how
        request = Message(count=0) if request is None else request
        self.own = self._do(lambda: self._subscribe(getattr(channel.stub, method), request, **how))

    def _do(self, function):
        return self._loop.do(function) if self._loop else function()

    def next(self):
        return self._loop.run(_next(self.own)) if self._loop else next(self.own, "end")

    def numbers(self, many):
        return [self.next().count for _ in range(many)]

    def close(self):
        if self._loop:
            self._loop.run(self.own.aclose())
        else:
            self.own.close()


async def _next(subscription):
    return await anext(subscription, "end")


@pytest.fixture
def reading(ours, log):
    """A function that runs a server, opens a channel to it, and yields a reader of a new subscription."""

    @contextlib.contextmanager
    def opens(servicer, *, channel_how=(), **how):
        channel_how = {"listeners": [log.hear], **dict(channel_how)}
        with place(servicer) as server, ours.channel(server.target, **channel_how) as channel:
            reader = Reader(channel, **how)
            reader.server, reader.channel = server, channel
            try:
                yield reader
            finally:
                reader.close()

    return opens


@pytest.fixture
def read(reading):
    """A function that returns the next `many` numbers of a new subscription."""

    def reads(servicer, many, **how):
        with reading(servicer, **how) as reader:
            return reader.numbers(many)

    return reads


@pytest.mark.parametrize("code", [CODE.OK, CODE.UNAVAILABLE, CODE.CANCELLED, CODE.INTERNAL, CODE.UNKNOWN])
def test_resumed(read, code):
    """SB-1, SB-2: a stream that ends after messages, however it ends, goes on behind the last message that was read."""
    servicer = Numbers((3, code), (2, code))

    assert read(servicer, 9) == list(range(9))
    assert servicer.from_ == [0, 3, 5]


def test_same_request(read):
    """SB-1: without `resume`, and before any message, the same request is sent again."""
    servicer = Numbers((0, CODE.OK), (2, CODE.OK))

    assert read(servicer, 4, resume=None, request=Message(count=7)) == [7, 8, 7, 8]
    assert servicer.from_ == [7, 7, 7]


def test_stream_of_requests(read):
    """SB-1: a method whose requests are a stream gets one request in each stream."""
    assert read(Numbers((3, CODE.OK)), 6, method="Both") == list(range(6))


def test_stop(reading):
    """SB-2: `ends="stop"` takes an end without an error for the last one; an error is still followed by a stream."""
    servicer = Numbers((2, CODE.UNAVAILABLE), (2, CODE.OK))
    with reading(servicer, ends="stop") as reader:
        assert reader.numbers(4) == [0, 1, 2, 3]
        assert [reader.next(), reader.next()] == ["end", "end"]


@pytest.mark.parametrize("code", [CODE.PERMISSION_DENIED, CODE.OUT_OF_RANGE, CODE.INTERNAL])
def test_permanent(reading, code):
    """SB-2: a code that the policy does not retry ends the subscription with grpc's own error."""
    with reading(Numbers((1, CODE.OK), (0, code))) as reader:
        reader.next()

        with pytest.raises(grpc.RpcError) as caught:
            reader.next()

        assert (caught.value.code(), caught.value.details()) == (code, "as told")
        assert not isinstance(caught.value, RetriesExhaustedError)
        assert reader.next() == "end"


@pytest.fixture
def following_wire(ours):
    """A function that yields a reader of a subscription to a server with these answers, and the server."""

    @contextlib.contextmanager
    def opens(*answers, **how):
        streams = Streams(*answers)
        with front(streams) as server, ours.channel(server.target) as channel:
            reader = Reader(channel, resume=None, request=Message(count=7), **how)
            try:
                yield reader, streams
            finally:
                reader.close()

    return opens


CUTS = {
    "reset before headers": 2,
    "reset": cut(2),
    "reset with headers": cut(2, headers=[("server", "envoy")]),
    "reset without an error": cut(0),
    "cancelled": cut(8),
    "shed": cut(11),
    "inadequate security": cut(12),
    "ended on DATA": cut("data"),
    "ended without a status": cut("trailers"),
}


@pytest.mark.parametrize("answer", CUTS.values(), ids=CUTS)
def test_cut(following_wire, answer):
    """SB-2: a stream that is cut before its first message is opened again, however a proxy cuts it."""
    with following_wire(answer, answer) as (reader, streams):
        assert reader.numbers(1) == [7]
    assert len(streams.visits) == 3


def test_cut_again_and_again(following_wire):
    """SB-2, SB-4: streams that are cut again and again without a message count for the policy's limit."""
    with following_wire(*[cut(2)] * 9, policy=f"retry: 2, {QUICK}") as (reader, streams):
        with pytest.raises(RetriesExhaustedError, match="no attempts are left") as caught:
            reader.next()
        assert caught.value.code() is CODE.INTERNAL
    assert len(streams.visits) == 3


def fails_after_headers(_requests, context):
    """Send headers, and a status later: if they arrive together, `grpc.aio` may lose the headers."""
    context.send_initial_metadata((("a", "b"),))
    time.sleep(0.1)
    context.abort(CODE.INTERNAL, "boom")


def test_headers(reading):
    """SB-2: a server that fails after its headers has delivered something; that it always does so is its answer."""
    service = Tries(*[fails_after_headers] * 6, echo, *[fails_after_headers] * 9)
    with reading(service, resume=None, request=Message(count=7)) as reader:
        assert reader.numbers(1) == [7]
        with pytest.raises(grpc.RpcError) as caught:
            reader.next()
        assert (caught.value.code(), caught.value.details()) == (CODE.INTERNAL, "boom")
        assert not isinstance(caught.value, RetriesExhaustedError)
    assert len(service.metadata) == 7 + 7


def test_limit(reading, log):
    """SB-4: the attempts of a policy string count from the last message; the error has the account of the streams."""
    servicer = Numbers((0, CODE.OK), (1, CODE.OK), *[(0, CODE.UNAVAILABLE)] * 9)
    with reading(servicer, policy=f"retry: 2, {QUICK}") as reader:
        reader.next()

        with pytest.raises(RetriesExhaustedError, match="gave up: no attempts are left") as caught:
            reader.next()

        assert caught.value.code() is CODE.UNAVAILABLE
        assert len(servicer.from_) == 2 + 2, "the stream that delivered counts as the first of three"
        log.until(CallExhausted)


def test_preset_is_endless(reading):
    """SB-4: the limits of a preset do not apply: `background` allows a call seven attempts."""
    with reading(Numbers(), policy="background") as reader:
        assert reader.own._machine.policy.max_attempts is None


def test_clean_ends_exhaust(reading):
    """SB-4: a limit that clean ends reach is reported as UNAVAILABLE, since OK is no error."""
    with reading(Numbers(*[(0, CODE.OK)] * 9), policy=f"retry: 1, {QUICK}") as reader:
        with pytest.raises(RetriesExhaustedError, match="the server ends the stream") as caught:
            reader.next()

        assert caught.value.code() is CODE.UNAVAILABLE


def test_waits(read):
    """SB-3: a server that ends each stream at once sees one stream for each wait; real time, lower bounds only."""
    servicer = Numbers(*[(0, CODE.OK)] * 4)

    assert read(servicer, 1, policy="delay: 50ms, backoff: exponential, jitter: none") == [0]
    gaps = [later - sooner for sooner, later in zip(servicer.at, servicer.at[1:], strict=False)]
    assert len(gaps) == 4
    assert all(gap >= least - 0.01 for gap, least in zip(gaps, (0.05, 0.1, 0.2, 0.4), strict=True))


def test_gap(reading, log):
    """SB-5: a gap is delivered in line, before the message that ends it, and listeners get the same one."""
    with reading(Numbers((2, CODE.OK), (0, CODE.UNAVAILABLE)), gaps=True) as reader:
        read = [reader.next() for _ in range(4)]

    gap = read.pop(2)
    assert [message.count for message in read] == [0, 1, 2]
    assert isinstance(gap, Gap)
    assert (gap.opens, gap.code) == (2, "OK")
    assert 0 < gap.lasted < 20
    log.until(StreamResumed)
    assert [event.gap for event in log.of(StreamResumed)] == [gap]


def test_slow_reader(reading):
    """SB-6: a reader that does not read holds back the server; only flow control's windows are read ahead."""
    servicer = Numbers((10_000, CODE.OK))
    with reading(servicer, request=Message(text="x" * 50_000)) as reader:
        reader.next()
        seen = -1
        while seen != servicer.sent:  # real time: until the server is blocked
            seen = servicer.sent
            time.sleep(0.5)

        assert seen < 1_000


def test_restart(reading):
    """SB-1, SB-6: a stream waits for ready while the server is away, and no message is lost or read twice."""
    with reading(Numbers((5, None))) as reader:
        first = reader.numbers(5)
        reader.server.kill()
        threading.Timer(0.3, reader.server.start).start()

        assert first + reader.numbers(5) == list(range(10))


def test_timeout(read):
    """SB-6: `timeout` is the deadline of each stream; when it has passed, the stream is opened again."""
    servicer = Numbers((1, None), (1, None))

    assert read(servicer, 3, timeout=0.6) == [0, 1, 2]
    assert all(0 < left < 0.7 for left in servicer.remaining)


def test_not_retried_twice(read, log):
    """SB-7: the channel's own retry policy does not apply to a subscription's streams."""
    servicer = Numbers((0, CODE.UNAVAILABLE), (0, CODE.UNAVAILABLE))

    read(servicer, 1, channel_how={"retry": "retry: 5, delay: 1ms, jitter: none"})

    assert len(servicer.from_) == 3
    log.until(StreamEnded, 2)
    assert log.of(CallRetried) == []
    assert not any("grpc-previous-rpc-attempts" in metadata for metadata in servicer.metadata)


def test_refreshed(read):
    """SB-6, RT-4: UNAUTHENTICATED renews the credentials once at once; later streams use them."""
    servicer = Numbers((1, CODE.OK), (0, CODE.UNAUTHENTICATED), (1, CODE.OK))
    asked = []

    def renew(failed):
        asked.append(failed.code)
        return [("token", "new")]

    how = {"retry_hooks": RetryHooks(refresh_credentials=renew)}
    assert read(servicer, 3, channel_how=how, metadata=[("token", "old"), ("other", "1")]) == [0, 1, 2]
    assert asked == [CODE.UNAUTHENTICATED]
    assert [metadata["token"] for metadata in servicer.metadata] == ["old", "old", "new", "new"]
    assert {metadata["other"] for metadata in servicer.metadata} == {"1"}


def test_resume_fails(reading):
    """SB-1: an error in `resume` ends the subscription with it."""
    with reading(Numbers((1, CODE.OK)), resume=lambda _last, _request: {}["gone"]) as reader:
        reader.next()

        with pytest.raises(KeyError, match="gone"):
            reader.next()

        assert reader.next() == "end"


@pytest.mark.parametrize("state", ["idle", "waiting", "opening", "streaming", "sleeping"])
def test_closed(ours, reading, state):
    """SB-6: closing ends a waiting reader and leaves nothing: no call, task or timer; real time of 0.2 s per state."""
    servicer = Numbers(*{"opening": [(0, None)], "streaming": [(1, None)], "sleeping": [(0, CODE.OK)]}.get(state, []))
    with reading(servicer, policy="delay: 1h, jitter: none") as reader:
        if state == "waiting":
            reader.server.kill()
        got = []
        thread = threading.Thread(target=lambda: got.extend([reader.next(), reader.next()][-1:]))
        if state == "idle":
            reader.close()
        thread.start()
        if state != "idle":
            time.sleep(0.2)
            reader.close()
        thread.join(20)

        assert got == ["end"]
        assert reader.own._call is reader.own._todo is None
        assert not reader.channel.own.calls._between
        if state in ("opening", "streaming"):
            assert servicer.cancelled.wait(20)


def test_channel_closed(ours, reading):
    """SB-6: a channel that is closed ends a subscription between two streams, as it does a call."""
    with reading(Numbers((1, CODE.OK), (0, CODE.OK)), policy="delay: 1h, jitter: none") as reader:
        reader.next()
        ended = []

        def wait():
            try:
                reader.next()
            except BaseException as error:  # noqa: BLE001 - a CancelledError
                ended.append(type(error).__name__)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: reader.own._state.phase.name == "SLEEPING")
        reader.channel.close()
        thread.join(20)

    assert ended == ["CancelledError" if ours.name == "asyncio" else "_InactiveRpcError"]


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"ends": "never"}, OptionError),
        ({"timeout": 0}, OptionError),
        ({"timeout": -1.0}, OptionError),
        ({"policy": "nonsense"}, OptionError),
        ({"resume": 1}, OptionError),
        ({"method": "Unary"}, TypeError),
        ({"method": "Up"}, TypeError),
    ],
)
def test_mistakes(ours, how, error):
    """SB-1: a wrong argument is refused at once."""
    with ours.channel("127.0.0.1:1") as channel, pytest.raises(error, match="expected"):
        Reader(channel, **how)


def test_plain_channel(ours):
    """SB-1: a method of grpc's own channel is refused, as by `retrying`."""
    with ours.channel("127.0.0.1:1") as channel:
        method = grpc.insecure_channel("127.0.0.1:1").unary_stream("/echo.v1.Echo/Down")
        channel.stub.Down = method
        with pytest.raises(TypeError, match=r"multicallable=<grpc\._channel\..*expected a method of a stub"):
            Reader(channel)


def test_interceptors(ours, read):
    """SB-1: on asyncio, a channel's interceptors see each stream, with the request from which it goes on.

    On threads, `grpc.intercept_channel` returns a channel of grpc's own, whose methods are refused with a clear error.
    """
    seen = []

    def looks(continuation, details, request):
        seen.append(request.count)
        return (yield continuation(details, request))

    how = {"channel_how": {"interceptors": [looks]}}
    if ours.name == "threads":
        with pytest.raises(TypeError, match="expected a method of a stub on a grpc_backoff channel"):
            read(Numbers(), 1, **how)
    else:
        assert read(Numbers((3, CODE.OK)), 6, **how) == list(range(6))
        assert seen == [0, 3]
