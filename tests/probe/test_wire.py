"""The bytes of a connection with one call at most: how they are parsed, and that no input causes an exception."""

from __future__ import annotations

import struct

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingAckReceived, RemoteSettingsChanged, RequestReceived, SettingsAcknowledged, StreamEnded
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, HeadersFrame, PushPromiseFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.probe.reply import Reply
from grpc_backoff.probe.wire import Wire, describe
from tests.peers import PING, SETTINGS, goaway


def fed(*pieces):
    wire = Wire()
    for piece in pieces:
        wire.feed(piece)
    return wire


def server():
    """Return the server's side of a connection, which expects the client's preface."""
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    connection.data_to_send()
    return connection


def test_the_preface_is_http2s_and_refuses_push():
    """CB-6: the client's first bytes are an HTTP/2 preface whose SETTINGS disable server push."""
    [settings] = [each for each in server().receive_data(Wire().to_send()) if isinstance(each, RemoteSettingsChanged)]
    assert settings.changed_settings[SettingCodes.ENABLE_PUSH].new_value == 0


@pytest.mark.parametrize("size", [1, 3, 9, 1000])
def test_settings_arrive_in_pieces_of_any_size(size):
    """CB-6: the server's SETTINGS are known once the last byte of the frame has arrived."""
    wire = Wire()
    for start in range(0, len(SETTINGS), size):
        assert wire.settings is None
        wire.feed(SETTINGS[start : start + size])
    assert wire.settings == {"MAX_CONCURRENT_STREAMS": 100, "INITIAL_WINDOW_SIZE": 65535}
    assert wire.loss is None


def test_settings_and_pings_are_acknowledged():
    """CB-6: the server's SETTINGS and PING frames are acknowledged."""
    wire, other = fed(SETTINGS, PING), server()
    events = other.receive_data(wire.to_send())
    assert [type(each) for each in events if isinstance(each, SettingsAcknowledged | PingAckReceived)] == [
        SettingsAcknowledged,
        PingAckReceived,
    ]
    assert wire.to_send() == b""


def test_an_empty_settings_frame_is_one():
    """CB-6: an empty SETTINGS frame, from a server that uses all defaults, counts as SETTINGS."""
    wire = fed(SettingsFrame(0).serialize())
    assert wire.settings == {}
    assert wire.loss is None


def test_later_settings_add_to_the_first():
    """CB-6: later SETTINGS override the first; settings without a known name are shown by number."""
    said = {3: 0, 0xFE03: 1, 0xABCD: 7}  # packed below: hyperframe cannot write settings above 255
    later = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"".join(struct.pack(">HL", *each) for each in said.items())
    assert fed(SETTINGS, later).settings == {
        "MAX_CONCURRENT_STREAMS": 0,
        "INITIAL_WINDOW_SIZE": 65535,
        "GRPC_ALLOW_TRUE_BINARY_METADATA": 1,
        "0xabcd": 7,
    }


@pytest.mark.parametrize(
    ("frame", "graceful", "reason"),
    [
        (goaway(), True, "GOAWAY NO_ERROR"),
        (goaway(0, b"max_age"), True, "GOAWAY NO_ERROR, 'max_age'"),
        (goaway(11, b"too_many_pings"), False, "GOAWAY ENHANCE_YOUR_CALM, 'too_many_pings'"),
        (goaway(11, b"\x1b[2J\xff"), False, r"GOAWAY ENHANCE_YOUR_CALM, '\x1b[2J\\xff'"),
        (goaway(0xBEEF), False, "GOAWAY 0xbeef"),
    ],
)
def test_goaway(frame, graceful, reason):
    """CB-8: only GOAWAY with NO_ERROR is graceful; the reason includes its debug data, escaped."""
    loss = fed(SETTINGS, frame).loss
    assert (loss.graceful, loss.reason) == (graceful, reason)


def test_goaway_with_a_ping_behind_it_is_graceful():
    """CB-8: a GOAWAY followed by a PING, as grpc's servers send it, is graceful."""
    assert fed(SETTINGS + goaway() + PING).loss.graceful


def test_settings_with_garbage_behind_them_are_settings():
    """CB-6: SETTINGS count even if garbage follows in the same data."""
    wire = fed(SETTINGS + b"\xff" * 100)
    assert wire.settings
    assert not wire.loss.graceful


@pytest.mark.parametrize(
    "frame",
    [
        HeadersFrame(1, b"\x88", flags=["END_HEADERS"]).serialize(),
        DataFrame(1, b"data").serialize(),
        PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize(),
        SettingsFrame(0, settings={5: 1}).serialize(),
        PING.replace(b"\x00\x00\x08", b"\x00\x00\x07", 1),
    ],
)
def test_broken_rules_end_the_connection(frame):
    """CB-6: a frame that violates HTTP/2 ends the connection, and the server receives a GOAWAY."""
    wire = fed(SETTINGS)
    wire.to_send()
    wire.feed(frame + b"\0" * 9)
    assert wire.loss is not None
    assert not wire.loss.graceful
    assert wire.to_send()[3] == 7  # GOAWAY


def test_unknown_frames_are_ignored():
    """CB-6: frames of an unknown type are ignored, because HTTP/2 is extensible."""
    wire = fed(SETTINGS, b"\x00\x00\x08\xbc\x00\x00\x00\x00\x00whatever", PING)
    assert wire.loss is None


def test_too_long_a_frame_is_not_waited_for():
    """CB-6: a frame of 16 MB is rejected as soon as its header is read, so it cannot fill the memory."""
    wire = fed(SETTINGS, b"\xff\xff\xff\x06\x00\x00\x00\x00\x00")
    assert "16777215 bytes" in wire.loss.reason


def test_goodbye():
    """CB-10: the client sends GOAWAY once and ignores what arrives afterwards."""
    wire = fed(SETTINGS)
    wire.to_send()
    wire.say_goodbye()
    wire.say_goodbye()
    wire.feed(PING + b"\xff" * 20)
    assert wire.loss.graceful
    assert wire.to_send() == goaway()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nserver: x\r\n\r\n", "it answered in HTTP/1: 'HTTP/1.1 400 Bad Request'"),
        (b"HTTP/1.0 \x1b[2J", r"it answered in HTTP/1: 'HTTP/1.0 \x1b[2J'"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "it answered in TLS"),
        (b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76", "it answered in TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"it does not speak HTTP/2; it sent 'SSH-2.0-OpenSSH_9.2\r\n'"),
        (b"\x00\x00\x06", r"it sent only '\x00\x00\x06'"),
        (SETTINGS[:12], "it stopped in the middle of its SETTINGS frame"),
        (goaway(), "its first frame was GoAway, not SETTINGS"),
        (
            SettingsFrame(0, flags=["ACK"]).serialize(),
            "its first frame was malformed, or only an acknowledgement, not SETTINGS",
        ),
        (SettingsFrame(0, settings={5: 1}).serialize(), "it violated HTTP/2"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x01", r"it does not speak HTTP/2"),
    ],
)
def test_what_came_in_place_of_settings(head, words):
    """CH-11: if a server's first bytes are not a SETTINGS frame, its description is based on those bytes."""
    assert words in describe(head) or describe(head) == "its SETTINGS frame is not valid"
    wire = fed(head)
    assert wire.settings is None
    if len(head) >= 9 and head != SETTINGS[:12]:
        assert words in wire.loss.reason


FRAMES = st.sampled_from([SETTINGS, PING, goaway(), goaway(2, b"x"), SettingsFrame(0, flags=["ACK"]).serialize()])
HEADERS = st.tuples(st.integers(0, 40), st.integers(0, 12), st.binary(min_size=5, max_size=5)).map(
    lambda each: each[0].to_bytes(3) + bytes([each[1]]) + each[2]
)


@given(st.lists(st.one_of(FRAMES, HEADERS, st.binary(max_size=60))))
def test_nothing_raises(pieces):
    """CB-6: no input raises an error: it leads to SETTINGS, to a loss with a reason, or to waiting for more data."""
    wire, together = fed(*pieces), fed(b"".join(pieces))
    assert wire.settings == together.settings
    ends = [(each.loss is not None, each.loss is not None and each.loss.graceful) for each in (wire, together)]
    assert ends[0] == ends[1]
    assert wire.loss is None or wire.loss.reason
    wire.to_send()
    wire.say_goodbye()
    assert wire.loss is not None


CALL = ("/grpc.health.v1.Health/Check", "localhost:1", "http")
ANSWERS = st.sampled_from(
    [
        HeadersFrame(1, b"\x88", flags=["END_HEADERS"]).serialize(),
        HeadersFrame(1, b"\x88", flags=["END_HEADERS", "END_STREAM"]).serialize(),
        HeadersFrame(3, b"\x88", flags=["END_HEADERS"]).serialize(),
        HeadersFrame(1, b"\x40\x01\xff\x01\xfe", flags=["END_HEADERS"]).serialize(),
        DataFrame(1, b"x" * 100).serialize(),
        DataFrame(1, b"", flags=["END_STREAM"]).serialize(),
        RstStreamFrame(1, error_code=11).serialize(),
        RstStreamFrame(1, error_code=2**32 - 1).serialize(),
    ]
)


def called(*pieces):
    wire = fed(SETTINGS)
    wire.call(*CALL)
    for piece in pieces:
        wire.feed(piece)
    return wire


def test_a_call():
    """CH-11: one call asks who is there; its answer is known at the end of its stream."""
    other, wire = server(), called()
    events = other.receive_data(wire.to_send())
    [asked] = [dict(event.headers) for event in events if isinstance(event, RequestReceived)]
    assert (asked[b":path"], asked[b":authority"]) == (b"/grpc.health.v1.Health/Check", b"localhost:1")
    assert asked[b"te"] == b"trailers"
    other.send_headers(1, [(":status", "200"), ("server", "x" * 300)])
    other.send_data(1, b"y" * 100)
    wire.feed(other.data_to_send())
    assert wire.reply is None
    other.send_headers(1, [("grpc-status", "0")], end_stream=True)
    wire.feed(other.data_to_send())
    assert wire.reply == Reply({":status": "200", "server": "x" * 200}, {"grpc-status": "0"}, b"y" * 64)


@pytest.mark.parametrize("window", [0, 4])
def test_a_call_that_waits_for_flow_control(window):
    """CH-11: if the server's SETTINGS leave no room for the call's message, it is sent once there is room."""
    wire, other = fed(SettingsFrame(0, settings={4: window}).serialize()), server()
    wire.call(*CALL)
    assert not any(isinstance(event, StreamEnded) for event in other.receive_data(wire.to_send()))
    wire.feed(WindowUpdateFrame(1, window_increment=5 - window).serialize())
    [ended] = [event for event in other.receive_data(wire.to_send()) if isinstance(event, StreamEnded)]
    assert ended.stream_id == 1


@pytest.mark.parametrize(
    "answer",
    [
        RstStreamFrame(1).serialize(),
        HeadersFrame(1, b"\x88", flags=["END_HEADERS", "END_STREAM"]).serialize(),
        goaway(),
    ],
)
def test_a_call_that_ends_before_there_is_room(answer):
    """CH-11: a message that was never sent is dropped with its call."""
    wire = fed(SettingsFrame(0, settings={4: 0}).serialize())
    wire.call(*CALL)
    wire.feed(answer)
    assert wire.reply or wire.loss
    wire.feed(WindowUpdateFrame(0, window_increment=5).serialize() + SettingsFrame(0, settings={4: 9}).serialize())
    assert b"\x00\x00\x05\x00" not in wire.to_send(), "no DATA"


@pytest.mark.parametrize("code", [11, 2**32 - 1])
def test_a_call_that_is_reset(code):
    """CH-11: the error code of a reset is kept, known or not."""
    wire = called(RstStreamFrame(1, error_code=code).serialize())
    assert wire.reply == Reply({}, {}, reset=code)
    assert wire.loss is None


@given(st.lists(st.one_of(FRAMES, ANSWERS, HEADERS, st.binary(max_size=60))))
def test_no_answer_raises(pieces):
    """CH-11: no input raises an error during a call either."""
    wire = called(*pieces)
    assert wire.reply is None or wire.reply.http in (None, 200)
    wire.to_send()
