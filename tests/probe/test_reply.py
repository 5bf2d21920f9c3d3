"""CH-11: who answered a call, read from the headers, trailers and body of any answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.probe.diagnosis import diagnose_reply
from grpc_backoff.probe.reply import Answerer, Reply, describe_reply

GRPC = {":status": "200", "content-type": "application/grpc"}
ENVOY = {**GRPC, "server": "envoy"}
SERVICE_TIME = {"x-envoy-upstream-service-time": "3"}
UNIMPLEMENTED = {"grpc-status": "12", "grpc-message": "Method not found!"}
SERVING, NOT_SERVING = b"\0\0\0\0\2\x08\1", b"\0\0\0\0\2\x08\2"

SERVERS = [
    (Reply({**GRPC, **UNIMPLEMENTED}, {}), "UNIMPLEMENTED 'Method not found!'"),
    (Reply(GRPC, {"grpc-status": "0"}, SERVING), "SERVING"),
    (Reply(GRPC, {"grpc-status": "0"}, NOT_SERVING), "NOT_SERVING"),
    (Reply(GRPC, {"grpc-status": "0"}, bytes(5)), "UNKNOWN"),
    (Reply(GRPC, {"grpc-status": "0"}, b"\1\0\0\0\2\x08\1"), "OK"),  # compressed
    (Reply(GRPC, {"grpc-status": "0"}, b"?"), "OK"),
    (Reply(GRPC, {"grpc-status": "14", "grpc-message": "not%20yet"}), "UNAVAILABLE 'not yet'"),
    (Reply({**ENVOY, **SERVICE_TIME, **UNIMPLEMENTED}, {}), "UNIMPLEMENTED 'Method not found!', server envoy"),
    (Reply(ENVOY, {"grpc-status": "0"}, SERVING), "SERVING"),  # Envoy adds nothing, but has only passed headers on
    (Reply({**GRPC, "server": "nginx/1.22.1"}, {"grpc-status": "0"}, SERVING), "SERVING"),
    (Reply({**GRPC, **UNIMPLEMENTED, "via": "2 nghttpx"}, {}), "UNIMPLEMENTED 'Method not found!', server 2 nghttpx"),
]
PROXIES = [
    (
        Reply({":status": "502", "server": "nginx/1.22.1", "content-type": "text/html"}, {}),
        "HTTP 502, server nginx/1.22.1",
    ),
    (Reply({":status": "503", "content-type": "text/html"}, {}), "HTTP 503"),
    (Reply({":status": "200", "content-type": "text/html"}, {}), "HTTP 200"),
    (Reply({":status": "404", "content-type": "text/html"}, {}), "HTTP 404"),  # no route, maybe for this service only
    (Reply({":status": "401", "content-type": "application/grpc"}, {}), "HTTP 401"),
    (
        Reply({**ENVOY, "grpc-status": "14", "grpc-message": "no healthy upstream"}, {}),
        "UNAVAILABLE 'no healthy upstream', server envoy",
    ),
    (Reply({**ENVOY, "grpc-status": "12"}, {}), "UNIMPLEMENTED, server envoy"),  # there is no route
    (Reply({**ENVOY, "server": "istio-envoy", "grpc-status": "16"}, {}), "UNAUTHENTICATED, server istio-envoy"),
]
WITHOUT_A_STATUS = [Reply(GRPC, {"grpc-status": "17"}), Reply(GRPC, {"grpc-status": "-1"}), Reply(GRPC, {}, bytes(5))]
NEITHER = [Reply({}, {}, reset=11), Reply(GRPC, {}, reset=2), Reply({}, {})]


@pytest.mark.parametrize(("reply", "words"), SERVERS)
def test_a_server(reply, words):
    """CH-11: the server answers, whatever its status is, and through whichever proxy."""
    assert reply.answerer is Answerer.SERVER
    assert describe_reply(reply) == f"the server answers calls: {words}"
    assert (diagnose_reply(reply) is None) == (reply.health not in ("NOT_SERVING", "UNKNOWN"))


@pytest.mark.parametrize(("reply", "words"), PROXIES)
def test_a_proxy(reply, words):
    """CH-11: an answer that is not gRPC's is a proxy's; so is Envoy's own status."""
    assert reply.answerer is Answerer.PROXY
    assert describe_reply(reply) == f"a proxy answered a call in place of the server: {words}"
    assert "ends at a proxy" in diagnose_reply(reply).meaning
    assert ("is up" in diagnose_reply(reply).advice) == (reply.http not in (401, 404))


@pytest.mark.parametrize("reply", WITHOUT_A_STATUS)
def test_a_server_without_a_status(reply):
    """CH-11: a server whose calls would fail, because they end without a status that clients know, is not fine."""
    assert reply.answerer is Answerer.SERVER
    assert describe_reply(reply) == "the server answers calls: HTTP 200, no gRPC status"
    assert "without a gRPC status" in diagnose_reply(reply).meaning


@pytest.mark.parametrize("reply", [None, *NEITHER])
def test_neither(reply):
    """CH-11: a call that is cut or not answered is shown as that."""
    assert reply is None or reply.answerer is Answerer.NEITHER
    assert "The connection is up, but " in diagnose_reply(reply).meaning
    assert describe_reply(reply)


TEXTS = st.text(max_size=20)
NAMES = st.sampled_from([*ENVOY, *SERVICE_TIME, *UNIMPLEMENTED, "via"]) | TEXTS
HEADERS = st.dictionaries(NAMES, st.sampled_from(["200", "14", "0", "application/grpc", "envoy", "%", "%ff"]) | TEXTS)


@given(st.builds(Reply, HEADERS, HEADERS, st.binary(max_size=9), st.none() | st.integers(0, 2**32 - 1)))
def test_nothing_raises(reply):
    """CH-11: no answer raises an error."""
    assert describe_reply(reply)
    diagnose_reply(reply)
