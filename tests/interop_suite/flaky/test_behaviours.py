"""Every behaviour does on the wire what its script says, as seen by a client without gRPC that records each frame."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from grpc_judge import flaky
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.timeline import Ending
from tests.interop_suite.flaky.clients import PATH, PREFACE, SOON, TLS, WITHIN, Client, message

MAX_CONCURRENT_STREAMS = 3
EARLY = 0.02  # seconds; timers may fire a moment early
both = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])


def serving(script, *, tls=False):
    return flaky.FlakyServer(script, TLS if tls else None)


async def the_visit(server):
    """Wait until the only connection has ended and return its visit."""
    async with asyncio.timeout(WITHIN):
        await server.wait_for(ended=1)
    (visit,) = server.timeline().visits
    return visit


async def test_refuse_kill():
    """IO-3: `refuse` closes open connections only with `kill`. Waits 2 s."""
    first = flaky.Step(flaky.Working(), lasting=1)
    async with serving([first, flaky.Refuse(kill=True)]) as server, await Client.open(server) as client:
        assert await client.until_end() == "closed"
        assert (await the_visit(server)).ending is Ending.CLOSED
    async with serving([first, flaky.Refuse()]) as server, await Client.open(server) as client:
        await client.until(SettingsFrame)
        while not server.timeline().refusing:
            await asyncio.sleep(0.01)
        client.hello()
        stream = client.request()
        await client.until(HeadersFrame, stream, 2)


@both
@pytest.mark.parametrize("says", [b"", PREFACE], ids=["silently", "speaking"])
@pytest.mark.parametrize("after", [0, 0.3])
async def test_accept_close(tls, says, after):
    """IO-3: `accept_close` sends FIN and no data, at once or later, whatever the client has sent. Waits up to 0.3 s."""
    async with serving(flaky.AcceptClose(after), tls=tls) as server, await Client.open(server) as client:
        client.send(says)
        assert await client.until_end() == "closed"
        assert time.monotonic() - client.began >= after - EARLY
        assert client.raw == b""
        assert (await the_visit(server)).ending is Ending.CLOSED


async def test_accept_close_behind_the_handshake():
    """IO-3: with `tls`, `accept_close` closes after a successful TLS handshake; without it, the handshake fails."""
    async with serving(flaky.AcceptClose(tls=True), tls=True) as server, await Client.open(server, tls=True) as client:
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        assert await client.until_end() == "closed"
        assert client.raw == b""
    async with serving(flaky.AcceptClose(), tls=True) as server:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await Client.open(server, tls=True)


@both
@pytest.mark.parametrize("after", [0, 0.3])
async def test_accept_reset(tls, after):
    """IO-3: `accept_reset` sends RST and no data, at once or later. Waits up to 0.3 s."""
    async with serving(flaky.AcceptReset(after), tls=tls) as server, await Client.open(server) as client:
        assert await client.until_end() == "reset"
        assert time.monotonic() - client.began >= after - EARLY
        assert client.raw == b""
        assert (await the_visit(server)).ending is Ending.RESET


@both
async def test_silent(tls):
    """IO-3: `silent` never sends a byte, but notices when the client leaves. Waits 0.3 s."""
    async with serving(flaky.Silent(), tls=tls) as server, await Client.open(server, tls=tls) as client:
        client.hello()
        client.request()
        assert await client.silence() is None
        await client.leave()
        visit = await the_visit(server)
        assert visit.ending is Ending.PEER_CLOSED
        assert visit.preface is not None
        assert visit.settings_sent is None


async def test_silent_below_tls():
    """IO-3: with `tls=false`, `silent` does not answer the ClientHello either. Waits 0.3 s."""
    async with serving(flaky.Silent(tls=False), tls=True) as server:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Client.open(server, tls=True), SOON)
        visit = await the_visit(server)
        assert visit.first_bytes is not None
        assert visit.preface is None


@both
async def test_slow_settings(tls):
    """IO-3: `slow_settings` waits for the delay, then sends SETTINGS and answers earlier requests. Waits 0.4 s."""
    async with serving(flaky.SlowSettings(0.4), tls=tls) as server, await Client.open(server, tls=tls) as client:
        client.hello()
        stream = client.request()
        await client.until(HeadersFrame, stream, 2)
        assert client.moments[0][0] - client.began >= 0.4 - EARLY
        assert type(client.heard[0].frame) is SettingsFrame
        assert "ACK" not in client.heard[0].frame.flags
        (visit,) = server.timeline().visits
        assert visit.settings_sent - visit.accepted >= 0.4 - EARLY


@both
async def test_trickle(tls):
    """IO-3: `trickle` sends one SETTINGS frame byte by byte over the given time and then works. Waits 0.6 s."""
    async with serving(flaky.Trickle(0.6), tls=tls) as server, await Client.open(server, tls=tls) as client:
        await client.until(SettingsFrame)
        length = len(client.raw)
        assert client.heard[0].frame.body_len + 9 == length
        moments = [at for at, _ in client.moments]
        assert len(moments) > 1, "on a busy machine, some may come together"
        assert moments[-1] - client.began >= 0.6 - EARLY
        client.hello()
        await client.until(HeadersFrame, client.request(), 2)
        (visit,) = server.timeline().visits
        assert visit.settings_sent - visit.accepted >= 0.6 - EARLY


@both
async def test_tls_garbage(tls):
    """IO-3: `tls_garbage` answers the first bytes with data that is not TLS, and then sends nothing. Waits 0.6 s."""
    async with serving(flaky.TlsGarbage(), tls=tls) as server, await Client.open(server) as client:
        assert await client.silence() is None
        client.send(PREFACE)
        garbage = await client.silence(WITHIN)
        assert garbage[0] not in range(20, 25), "the types of TLS records"
        assert await client.silence() is None
    async with serving(flaky.TlsGarbage(), tls=tls) as server:
        with pytest.raises(ssl.SSLError, match=r"WRONG_VERSION_NUMBER|wrong version number"):
            await Client.open(server, tls=True)


@both
async def test_http1_answer(tls):
    """IO-3: `http1_answer` answers the first bytes with an HTTP/1.1 response, then sends FIN. Waits 0.3 s.

    With TLS, it negotiates no ALPN protocol and answers over TLS, like a server without HTTP/2.
    """
    alpn = ("h2", "http/1.1")
    async with serving(flaky.Http1Answer(), tls=tls) as server, await Client.open(server, tls=tls, alpn=alpn) as client:
        if tls:
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        else:
            assert await client.silence() is None
        client.send(PREFACE)
        assert (await client.silence(WITHIN)).startswith(b"HTTP/1.1 400 ")
        assert await client.silence(WITHIN) == b""


@both
@pytest.mark.parametrize("after", [0, 0.3])
async def test_settings_then_close(tls, after):
    """IO-3: `settings_then_close` sends SETTINGS, then FIN after a delay, and nothing else. Waits up to 0.3 s."""
    script = flaky.SettingsThenClose(after)
    async with serving(script, tls=tls) as server, await Client.open(server, tls=tls) as client:
        assert await client.until_end() == "closed"
        assert [type(heard.frame) for heard in client.heard] == [SettingsFrame]
        assert time.monotonic() - client.began >= after - EARLY
        visit = await the_visit(server)
        assert visit.ending is Ending.CLOSED
        assert visit.ended - visit.settings_sent >= after - EARLY


@both
@pytest.mark.parametrize(("code", "last_stream"), [(ErrorCodes.NO_ERROR, 0), (ErrorCodes.INTERNAL_ERROR, 7)])
async def test_settings_then_goaway(tls, code, last_stream):
    """IO-3: `settings_then_goaway` sends SETTINGS and GOAWAY and stays open until the client leaves. Waits 0.3 s."""
    script = flaky.SettingsThenGoaway(code, last_stream)
    async with serving(script, tls=tls) as server, await Client.open(server, tls=tls) as client:
        goaway = await client.until(GoAwayFrame)
        assert [type(heard.frame) for heard in client.heard] == [SettingsFrame, GoAwayFrame]
        assert (goaway.error_code, goaway.last_stream_id) == (code, last_stream)
        assert await client.silence() is None
        await client.leave()
        assert (await the_visit(server)).ending is Ending.PEER_CLOSED


async def test_settings_then_goaway_later():
    """IO-3: `after` delays the GOAWAY; calls above its last stream count as refused. Waits 0.3 s."""
    async with serving(flaky.SettingsThenGoaway(after=0.3)) as server, await Client.open(server) as client:
        client.hello()
        client.request()
        await client.until(GoAwayFrame)
        assert time.monotonic() - client.began >= 0.3 - EARLY
        client.request()
        await client.leave()
        assert [request.outcome for request in (await the_visit(server)).requests] == ["refused", "refused"]


@both
@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        (flaky.SettingsThenGoaway(closes=True), ErrorCodes.NO_ERROR, b""),
        (flaky.EnhanceYourCalm(), ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings"),
    ],
)
async def test_settings_then_goaway_and_close(tls, script, code, text):
    """IO-3: `enhance_your_calm`, and `settings_then_goaway` with `closes`, send SETTINGS, GOAWAY and FIN."""
    async with serving(script, tls=tls) as server, await Client.open(server, tls=tls) as client:
        assert await client.until_end() == "closed"
        settings, goaway = (heard.frame for heard in client.heard)
        assert (type(settings), type(goaway)) == (SettingsFrame, GoAwayFrame)
        assert (goaway.error_code, goaway.additional_data) == (code, text)
        assert (await the_visit(server)).ending is Ending.CLOSED


@both
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (flaky.ResetAfterHeaders, None),
        (flaky.ResetDuringData, b"\x00\x00\x00\x04\x00" + bytes(512)),
        (flaky.ResetAfterData, message(b"")),
    ],
)
async def test_resets(tls, kind, data):
    """IO-3: the `reset_*` behaviours reset every call after headers, half a message or a whole one."""
    async with serving(kind(ErrorCodes.CANCEL), tls=tls) as server, await Client.open(server, tls=tls) as client:
        client.hello()
        for stream in (client.request(), client.request()):
            reset = await client.until(RstStreamFrame, stream)
            assert reset.error_code == ErrorCodes.CANCEL
            assert [headers[":status"] for headers in client.headers(stream)] == ["200"]
            assert [frame.data for frame in client.of(DataFrame, stream)] == ([] if data is None else [data])
        await client.leave()
        assert [request.outcome for request in (await the_visit(server)).requests] == ["reset", "reset"]


async def test_resets_within_a_closed_window():
    """IO-3: a client whose flow-control window is closed gets no data, but its call is still reset."""
    async with serving(flaky.ResetDuringData()) as server, await Client.open(server) as client:
        client.send(PREFACE[:24] + SettingsFrame(settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize())
        stream = client.request()
        await client.until(RstStreamFrame, stream)
        assert client.of(DataFrame) == []


@both
async def test_ping_flood(tls):
    """IO-3: `ping_flood` sends SETTINGS and then PINGs without end, while it serves calls."""
    async with serving(flaky.PingFlood(), tls=tls) as server, await Client.open(server, tls=tls) as client:
        client.hello()
        await client.until(PingFrame, count=50)
        stream = client.request()
        await client.until(HeadersFrame, stream, 2)
        await client.until(PingFrame, count=len(client.of(PingFrame)) + 50)
        assert type(client.heard[0].frame) is SettingsFrame
        assert all("ACK" not in frame.flags for frame in client.of(PingFrame))


async def test_ping_flood_of_a_client_that_does_not_listen():
    """IO-3: `ping_flood` pauses while the client does not read, so the server buffers a bounded amount."""
    async with serving(flaky.PingFlood(burst=10000, every=0)) as server, await Client.open_narrow(server) as client:
        client.writer.transport.pause_reading()
        (visitor,) = server._visitors
        transport = visitor.wire._transport
        async with asyncio.timeout(WITHIN):
            while not transport.get_write_buffer_size():
                await asyncio.sleep(0.01)
        await asyncio.sleep(SOON)
        assert transport.get_write_buffer_size() <= 10000 * 17 + 65536
        client.writer.transport.resume_reading()
        stalled = transport.get_write_buffer_size()
        await client.until(PingFrame, count=1000 + stalled // 17)


@both
@pytest.mark.parametrize("limit", [0, 1])
async def test_max_streams(tls, limit):
    """IO-3: `max_streams` announces its limit in SETTINGS, refuses each stream above it, and serves the others."""
    async with serving(flaky.MaxStreams(limit), tls=tls) as server, await Client.open(server, tls=tls) as client:
        settings = await client.until(SettingsFrame)
        assert settings.settings[MAX_CONCURRENT_STREAMS] == limit
        client.hello()
        streams = [client.request(ends=False) for _ in range(3)]
        for stream in streams[limit:]:
            assert (await client.until(RstStreamFrame, stream)).error_code == ErrorCodes.REFUSED_STREAM
        for stream in streams[:limit]:
            client.finish(stream)
            await client.until(HeadersFrame, stream, 2)
            await client.until(HeadersFrame, client.request(), 2)
        await client.leave()
        outcomes = [request.outcome for request in (await the_visit(server)).requests]
        assert outcomes == ["ok"] * limit + ["refused"] * (3 - limit) + ["ok"] * limit


@both
async def test_working(tls):
    """IO-3: `working` sends SETTINGS at once and answers any unary call with its own message and status 0."""
    async with serving(flaky.Working(), tls=tls) as server, await Client.open(server, tls=tls) as client:
        await client.until(SettingsFrame)
        client.hello()
        stream = client.request(b"hello")
        await client.until(HeadersFrame, stream, 2)
        headers, trailers = client.headers(stream)
        assert headers == {":status": "200", "content-type": "application/grpc"}
        assert trailers == {"grpc-status": "0"}
        assert b"".join(frame.data for frame in client.of(DataFrame, stream)) == message(b"hello")
        assert "END_STREAM" in client.heard[-1].frame.flags
        await client.leave()
        (request,) = (await the_visit(server)).requests
        assert (request.stream, request.path, request.outcome) == (stream, PATH, "ok")


async def test_working_takes_its_time():
    """IO-3: with `latency`, each call takes that long, even if calls overlap. Waits 0.3 s."""
    async with serving(flaky.Working(latency=0.3)) as server, await Client.open(server) as client:
        client.hello()
        asked = time.monotonic()
        for stream in [client.request(), client.request()]:
            await client.until(HeadersFrame, stream)
            assert time.monotonic() - asked >= 0.3 - EARLY


async def test_working_until_it_is_killed():
    """IO-3: with `lives`, the connection ends after that many seconds without GOAWAY. Waits 0.4 s."""
    async with serving(flaky.Working(lives=0.4)) as server, await Client.open(server) as client:
        client.hello()
        await client.until(HeadersFrame, client.request(), 2)
        assert await client.until_end() == "closed"
        assert client.of(GoAwayFrame) == []
        visit = await the_visit(server)
        assert visit.ended - visit.settings_sent >= 0.4 - EARLY
        assert visit.ending is Ending.CLOSED


async def test_flow_control_of_answers():
    """IO-3: answers stay within the client's flow-control window and continue as it grows."""
    async with serving(flaky.Working()) as server, await Client.open(server) as client:
        client.send(PREFACE[:24] + SettingsFrame(settings={SettingsFrame.INITIAL_WINDOW_SIZE: 10}).serialize())
        stream = client.request(bytes(100))
        await client.until(DataFrame, stream)
        assert await client.silence() is None
        assert [len(frame.data) for frame in client.of(DataFrame)] == [10]
        client.send(WindowUpdateFrame(stream, window_increment=30).serialize())
        await client.until(DataFrame, stream, 2)
        client.send(SettingsFrame(settings={SettingsFrame.INITIAL_WINDOW_SIZE: 1000}).serialize())
        await client.until(HeadersFrame, stream, 2)
        assert [len(frame.data) for frame in client.of(DataFrame)] == [10, 30, 65]


@both
async def test_rolling_restart(tls):
    """IO-3: `rolling_restart` sends GOAWAY, PING and a second GOAWAY, and lets running calls finish.

    The first GOAWAY accepts all streams. The second, sent once the PING is answered, names the last one. Waits 0.3 s.
    """
    script = flaky.RollingRestart(after=0.3)
    async with serving(script, tls=tls) as server, await Client.open(server, tls=tls) as client:
        client.hello()
        first = client.request(ends=False)
        goaway = await client.until(GoAwayFrame)
        assert (goaway.error_code, goaway.last_stream_id) == (ErrorCodes.NO_ERROR, 2**31 - 1)
        assert time.monotonic() - client.began >= 0.3 - EARLY
        second = client.request(ends=False)  # as if sent before GOAWAY arrived
        ping = await client.until(PingFrame)
        client.send(PingFrame(opaque_data=ping.opaque_data, flags=["ACK"]).serialize())
        goaway = await client.until(GoAwayFrame, count=2)
        assert (goaway.error_code, goaway.last_stream_id) == (ErrorCodes.NO_ERROR, second)
        client.request()  # too late to be served
        for stream in (first, second):
            client.finish(stream)
            await client.until(HeadersFrame, stream, 2)
            assert client.headers(stream)[1] == {"grpc-status": "0"}
        assert await client.until_end() == "closed"
        outcomes = [request.outcome for request in (await the_visit(server)).requests]
        assert outcomes == ["ok", "ok", "refused"]


async def test_rolling_restart_has_an_end():
    """IO-3: `rolling_restart` closes after the grace period, even if the client answers nothing. Waits 1.3 s."""
    async with serving(flaky.RollingRestart(after=0, grace=0.3)) as server, await Client.open(server) as client:
        client.hello()
        client.request(ends=False)
        assert await client.until_end() == "closed"
        assert len(client.of(GoAwayFrame)) == 2
        assert time.monotonic() - client.began >= 1.3 - EARLY
        assert [request.outcome for request in (await the_visit(server)).requests] == ["open"]


def test_each_behaviour_is_looked_at():
    """IO-3: every behaviour is played by a test in this module."""
    told = Path(__file__).read_text()
    assert [kind for kind in BY_NAME.values() if f"flaky.{kind.__name__}" not in told] == []
