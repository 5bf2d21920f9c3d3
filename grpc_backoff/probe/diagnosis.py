"""Explains the failure of an attempt and suggests what to do about it.

Most failures can be explained from the error alone. If two causes look the same from outside, further probes of the
server distinguish them (`looks.py`).
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.probe.dial import ALPN
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.looks import look_at_certificate, look_for_tls, look_in_plaintext
from grpc_backoff.probe.reply import Answerer, Reply
from grpc_backoff.probe.stages import NoSettings, NoTunnel, Security, WrongAlpn
from grpc_backoff.probe.wire import HALF, INVALID, TLS_ALERT, TLS_HANDSHAKE, VIOLATIONS, describe


class Diagnosis(NamedTuple):
    """What a failure means, and what to do about it."""

    meaning: str
    advice: str


async def diagnose(error: ConnectError, tried: Http2Connector) -> Diagnosis:
    """Explain an attempt that has failed with this error; this may probe the server again, for a few seconds."""
    found = await _diagnose(error, tried)
    return _of_a_socket(found) if tried.target.unix else found


def _of_a_socket(diagnosis: Diagnosis) -> Diagnosis:
    """Adapt a diagnosis to a Unix socket, which has no port."""
    return Diagnosis(diagnosis.meaning.replace(" port", " socket"), diagnosis.advice.replace(" port", " socket"))


async def _diagnose(error: ConnectError, tried: Http2Connector) -> Diagnosis:
    stage, cause = error.failure.stage, error.__cause__
    if isinstance(cause, NoTunnel):
        return _TUNNEL.get(cause.status, _NO_TUNNEL)
    if stage is Stage.RESOLVE:
        found, what = _resolve(cause), "name"
    elif stage is Stage.TCP or (tried.address is None and tried.proxy is None):
        found, what = _tcp(cause, unix=tried.target.unix), "address"
    else:
        return await (_tls if stage is Stage.TLS else _settings)(cause, tried)
    return found._replace(advice=f"{found.advice} This is the {what} of the HTTP proxy.") if tried.proxy else found


def diagnose_settings(settings: Mapping[str, int]) -> Diagnosis | None:
    """Return what is wrong with a server's SETTINGS; None if nothing is."""
    if settings.get("MAX_CONCURRENT_STREAMS") == 0:
        return Diagnosis(
            "MAX_CONCURRENT_STREAMS is 0: the server accepts the connection, but no calls on it.",
            "It may raise this limit later. If it does not, check the server for limits and for draining.",
        )
    return None


def diagnose_loss(loss: Loss) -> Diagnosis:
    """Explain a connection that ended right after SETTINGS."""
    if loss.graceful:
        return Diagnosis(
            "The server sent SETTINGS and then GOAWAY at once, like a server that is shutting down.",
            "Try again in a moment. If this persists, check the server for a very short max_connection_age.",
        )
    if loss.reason.startswith("GOAWAY"):
        return Diagnosis(
            "The server sent SETTINGS and then GOAWAY with an error.",
            "See its message above. ENHANCE_YOUR_CALM means too many pings or connections: compare keepalive settings.",
        )
    if loss.reason.startswith(VIOLATIONS):
        return Diagnosis("The server sent SETTINGS, and then what is not valid HTTP/2: see above.", _SPEAKS_WRONGLY)
    return Diagnosis(
        "The server sent SETTINGS and closed the connection at once.",
        "It, or a proxy in front of it, turns connections away: check its limits and its log.",
    )


_SPEAKS_WRONGLY = "Look at its log, and at that of a proxy in front of it; compare with another version of either."
_REFUSALS = range(400, 500)
"""The HTTP statuses with which a proxy refuses a call that it could have passed on."""
_REFUSED = Diagnosis(
    "The connection ends at a proxy, or at a web server, which refuses the call.",
    "Compare its routes and limits, and the credentials that it wants, with the call. It may treat the health service, "
    "which was called here, otherwise than other services.",
)
_NOT_BEHIND = Diagnosis(
    "The connection ends at a proxy, and the server behind it has not answered the call.",
    "Check whether that server is up, its address in the proxy's configuration, and whether the proxy speaks HTTP/2 to "
    "it. Until then, calls fail although the channel is READY: only a retry policy repeats them.",
)


def diagnose_reply(reply: Reply | None) -> Diagnosis | None:
    """Return what is wrong with the answer to the health check; None if the server has answered and serves."""
    if reply is None:
        return Diagnosis(
            "The connection is up, but a call on it got no answer.",
            "Check whether the server, or the server behind a proxy, hangs. See quiet_after for channels that notice.",
        )
    if reply.answerer is Answerer.NEITHER:
        return Diagnosis(
            "The connection is up, but the stream of a call on it was reset.",
            "Check the log of the server, or of a proxy in front of it, for limits and for a server that died.",
        )
    if reply.answerer is Answerer.PROXY:
        return _REFUSED if reply.http in _REFUSALS else _NOT_BEHIND
    if not reply.code:
        return Diagnosis(
            "The server answers without a gRPC status that clients know, so calls on it fail.",
            "Check whether it, or a proxy in front of it, can send HTTP/2 trailers, in which gRPC has the status.",
        )
    if reply.health in ("NOT_SERVING", "UNKNOWN"):
        return Diagnosis(
            f"The server is up and says that it is {reply.health}.",
            "Wait until it has started or drained, or see its log.",
        )
    return None


# Name resolution.

_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


_NO_HOST = Diagnosis(
    "This machine's resolver does not know this host name.",
    "Check the spelling and the name server that this machine uses. For a Unix socket, write unix:/path.",
)


def _resolve(cause: BaseException | None) -> Diagnosis:
    if isinstance(cause, UnicodeError) or (isinstance(cause, socket.gaierror) and cause.errno in _NO_SUCH_NAME):
        return _NO_HOST
    if isinstance(cause, TimeoutError) or (isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN):
        return Diagnosis("No name server answered.", "Check this machine's network and the name server that it uses.")
    return Diagnosis("The name could not be resolved.", "See the resolver's message above.")


# The tunnel through an HTTP proxy.

_NO_TUNNEL = Diagnosis(
    "The HTTP proxy does not make the tunnel.",
    "Check that the address is that of an HTTP proxy that allows CONNECT, or bypass it for this host with no_proxy.",
)
_UNREACHED = Diagnosis(
    "The HTTP proxy could not connect to the server.", "Check the server, and whether the proxy reaches its host."
)
_TUNNEL = {
    407: Diagnosis(
        "The HTTP proxy wants a user and a password.", "Write them into its URL: http://USER:PASSWORD@HOST:PORT."
    ),
    403: Diagnosis(
        "The HTTP proxy forbids this host or port.",
        "Ask for permission, or bypass the proxy for this host with no_proxy.",
    ),
    **dict.fromkeys((502, 503, 504), _UNREACHED),
}
"""The diagnoses for the statuses with which a proxy answers CONNECT."""

# TCP, and connecting to Unix sockets.

_TCP = {
    errno.ECONNREFUSED: Diagnosis(
        "Nothing is listening at this address.",
        "Check that the server is running, and that this is its port. In a container it must listen on 0.0.0.0 or "
        "[::], not on 127.0.0.1.",
    ),
    errno.ENOENT: Diagnosis(
        "There is no such socket file.", "Check that the server is running, and where it creates its socket."
    ),
    errno.EACCES: Diagnosis(
        "This user is not allowed to connect to the socket.", "Check the permissions of the socket and its directory."
    ),
    # Reported for a Unix socket if the server's backlog is full.
    errno.ENOTCONN: Diagnosis(
        "The server accepts no more connections.", "Check whether the server hangs or is overloaded."
    ),
}
_UNIX = {
    errno.ECONNREFUSED: Diagnosis(
        "The file exists, but nothing is listening on it.",
        "Check that the server is running: a socket file outlives its server. Also check that the file is a socket.",
    ),
    errno.EPROTOTYPE: Diagnosis(
        "This is a Unix socket of another type.", "gRPC needs a stream socket: check which server created this one."
    ),
}
"""The diagnoses that differ for a Unix socket."""
_NO_WAY = Diagnosis(
    "There is no route to the host from here.",
    "Check routes and VPN; for an IPv6 address, whether this machine has IPv6.",
)
_TCP |= dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL), _NO_WAY)


def _tcp(cause: BaseException | None, *, unix: bool) -> Diagnosis:
    if isinstance(cause, TimeoutError):
        return Diagnosis(
            "No answer: packets are being dropped on the way, or the host is down.",
            "Check the address, and the firewalls and security groups in between.",
        )
    number = cause.errno if isinstance(cause, OSError) else None
    other = Diagnosis("No socket connection could be made.", "See the system's message above.")
    return _tcp_diagnoses(unix=unix).get(number or 0, other)


def _tcp_diagnoses(*, unix: bool) -> Mapping[int, Diagnosis]:
    return _TCP | _UNIX if unix else _TCP


# TLS.

_HTTP2_BEHIND_TLS = (
    "gRPC needs HTTP/2, negotiated by ALPN. Enable HTTP/2 on the server or proxy, or use the gRPC server's own port."
)
_IN_PLAINTEXT = "Omit --tls, --ca, --cert and --key; in code, use insecure_channel."
_WITH_TLS = "Use TLS: --tls here, secure_channel in code."
_ANOTHER_PORT = "Use the port of the gRPC server: this is another server, or a proxy that does not speak HTTP/2."
_SILENT = (
    "Check whether the process is alive: the kernel accepts connections for it. "
    "Also check that this is a gRPC server's port."
)
_SAY_THE_NAME = "Dial it by its correct name, or set the name: --option grpc.ssl_target_name_override=NAME."
_PROXY = "A TCP proxy whose upstream is down does the same."
_LOGS = "A TCP proxy whose upstream is down does this, or a server at its connection limit: check their logs."
_SHOW_ONE = "Provide one with --cert and --key; in code, ssl_channel_credentials takes both."
_SHOW_ANOTHER = "Provide one that has not expired, from a CA that the server trusts."

_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAME = {62, 64}
"""OpenSSL's codes for a certificate that is not valid for the host name or the IP address."""
_UNTRUSTED = {2, 18, 19, 20, 21}
"""OpenSSL's codes for a missing or untrusted issuer, and for self-signed certificates."""

_OTHER_NAME = Diagnosis("The server's certificate is for a different name.", _SAY_THE_NAME)
_HTTP1 = Diagnosis("This is an HTTP/1 server.", _ANOTHER_PORT)
_NOT_TRUSTED = Diagnosis(
    "The server's certificate is not signed by a trusted CA.",
    "Provide the CA's certificate with --ca; in code, as root_certificates.",
)
_NOT_VALID = Diagnosis("The server's certificate is not valid.", "See OpenSSL's message above.")
_WANTS_CERTIFICATE = Diagnosis("The server requires a client certificate.", _SHOW_ONE)
_REFUSES_CERTIFICATE = Diagnosis("The server does not accept the client certificate.", _SHOW_ANOTHER)
_NO_ALPN = Diagnosis("This is the TLS port of a server that does not offer HTTP/2 by ALPN.", _HTTP2_BEHIND_TLS)
_OTHER_VERSION = Diagnosis(
    "The server supports none of the TLS versions that are used here.", "Enable TLS 1.2 or newer on it."
)
_NO_COMMON_WAY = Diagnosis(
    "The two sides have no TLS parameters in common, or the server requires a client certificate.",
    "Compare the ciphers of both sides. If a certificate is required, provide one with --cert and --key.",
)
_UNKNOWN_NAME = Diagnosis("The server has no certificate for the requested name.", _SAY_THE_NAME)

_ALERTS = (
    ("CERTIFICATE_REQUIRED", _WANTS_CERTIFICATE),
    ("ALERT_BAD_CERTIFICATE", _REFUSES_CERTIFICATE),
    ("ALERT_CERTIFICATE_EXPIRED", _REFUSES_CERTIFICATE),
    ("ALERT_CERTIFICATE_REVOKED", _REFUSES_CERTIFICATE),
    ("ALERT_CERTIFICATE_UNKNOWN", _REFUSES_CERTIFICATE),
    ("ALERT_UNKNOWN_CA", _REFUSES_CERTIFICATE),
    ("ALERT_NO_APPLICATION_PROTOCOL", _NO_ALPN),
    ("PROTOCOL_VERSION", _OTHER_VERSION),
    ("UNSUPPORTED_PROTOCOL", _OTHER_VERSION),
    ("ALERT_HANDSHAKE_FAILURE", _NO_COMMON_WAY),
    ("UNRECOGNIZED_NAME", _UNKNOWN_NAME),
)
"""The meaning of each TLS alert; OpenSSL's names for alerts have various prefixes."""


async def _tls(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate(cause.verify_code, await look_at_certificate(tried.address, tried.server_name))
    # Without a name for the reason, Python has OpenSSL's text of it.
    reason = getattr(cause, "reason", None) or str(cause).upper().replace(" ", "_")
    found = next((diagnosis for word, diagnosis in _ALERTS if word in reason), None)
    if found is _REFUSES_CERTIFICATE and not tried.shows_certificate:
        return _WANTS_CERTIFICATE
    if found is not None and found is not _NO_ALPN:
        return found
    # Apache answers with a protocol that was not offered, which ends the handshake like an error of TLS.
    hangs = isinstance(cause, TimeoutError)
    seen = None if hangs else await look_for_tls(tried.address, tried.server_name)
    if seen is not None and seen.alpn not in (None, ALPN):
        return Diagnosis(f"This is a TLS port that speaks only {seen.alpn}.", _HTTP2_BEHIND_TLS)
    if found is not None or isinstance(cause, WrongAlpn):
        return _NO_ALPN
    return await _no_tls(cause, tried)


def _certificate(code: int, seen: Security | None) -> Diagnosis:
    certificate = seen.certificate if seen else None
    whose = since = until = ""
    if certificate is not None:
        names = ", ".join(certificate.names) or "no name"
        whose = f" It is {certificate.subject}, for {names}, issued by {certificate.issuer}."
        since, until = _on(certificate.not_before), _on(certificate.not_after)
    known = {
        _EXPIRED: Diagnosis(
            f"The server's certificate expired{until}.",
            "Renew the certificate. If that date has not passed yet, correct this machine's clock.",
        ),
        _NOT_YET_VALID: Diagnosis(
            f"The server's certificate becomes valid only{since}.", "Check this machine's clock, then the server's."
        ),
        **dict.fromkeys(_WRONG_NAME, _OTHER_NAME),
        **dict.fromkeys(_UNTRUSTED, _NOT_TRUSTED),
    }
    meaning, advice = known.get(code, _NOT_VALID)
    return Diagnosis(meaning + whose, advice)


def _on(moment: datetime | None) -> str:
    return f" on {moment:%Y-%m-%d %H:%M} UTC" if moment else ""


async def _no_tls(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    """Explain a server that does not complete a TLS handshake."""
    head = await look_in_plaintext(tried.address)
    if head is None:
        return Diagnosis("This is a plaintext port: it speaks HTTP/2 without TLS.", _IN_PLAINTEXT)
    if head.startswith(b"HTTP/"):
        return Diagnosis("This is a plaintext port of an HTTP/1 server.", _ANOTHER_PORT)
    if head and not head.startswith(TLS_ALERT):
        return Diagnosis(f"This is not a TLS port: in plaintext, {describe(head)}.", _ANOTHER_PORT)
    if isinstance(cause, TimeoutError):
        return Diagnosis(
            "The server accepts the connection but does not answer: it hangs, or is not a TLS server.", _SILENT
        )
    maybe = "" if tried.shows_certificate else " With TLS 1.2, a server that requires a client certificate does this."
    return Diagnosis(f"The server hangs up during the TLS handshake.{maybe}", f"Check the server's log. {_PROXY}")


# SETTINGS.


async def _settings(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    found = cause if isinstance(cause, NoSettings) else NoSettings(b"", cause)
    if tried.tls:
        return await _settings_behind_tls(found, tried)
    seen = await look_for_tls(tried.address, tried.server_name)
    if seen is not None:
        wrong = "" if seen.alpn == ALPN else f" It negotiates {seen.alpn or 'no ALPN'}, but gRPC needs {ALPN}."
        return Diagnosis(f"This is a TLS port: a TLS handshake succeeds ({seen.version}).{wrong}", _WITH_TLS)
    if found.head.startswith((TLS_ALERT, TLS_HANDSHAKE)):
        return Diagnosis("This is a TLS port: it answers in TLS.", _WITH_TLS)
    return _no_settings(found)


async def _settings_behind_tls(found: NoSettings, tried: Http2Connector) -> Diagnosis:
    if found.head or isinstance(found.error, TimeoutError):
        return _no_settings(found)
    hangs_up = "The server hangs up right after the TLS handshake"
    if tried.shows_certificate:
        return Diagnosis(f"{hangs_up}. It may have rejected the client certificate.", f"{_SHOW_ANOTHER} {_PROXY}")
    older = ssl.TLSVersion.TLSv1_2
    if tried.address is not None and await look_for_tls(tried.address, tried.server_name, newest=older) is None:
        # In TLS 1.3, the handshake completes on this side before the server notices that a certificate is missing. In
        # TLS 1.2, it does not.
        return Diagnosis(f"{hangs_up}, like one that requires a client certificate.", f"{_SHOW_ONE} {_PROXY}")
    return Diagnosis(f"{hangs_up}.", _LOGS)


def _no_settings(found: NoSettings) -> Diagnosis:
    if found.head.startswith(b"HTTP/"):
        return _HTTP1
    came = describe(found.head) if found.head else ""
    if came == INVALID:
        return Diagnosis("The server speaks HTTP/2, but its SETTINGS are not valid: see above.", _SPEAKS_WRONGLY)
    if came not in ("", HALF):
        return Diagnosis("This is not a gRPC server: see its answer above.", _ANOTHER_PORT)
    if isinstance(found.error, TimeoutError):
        said = "stops in the middle of its first frame" if came else "sends nothing"
        return Diagnosis(
            f"The server accepts the connection but {said}: it hangs, is overloaded, or is not an HTTP/2 server.",
            _SILENT,
        )
    return Diagnosis("The server accepts the connection and hangs up.", _LOGS)


# The error texts of grpc's core, from which the failures of a channel are derived.

_HANGS_UP = Diagnosis(
    "The server accepts the connection and hangs up, like a TLS port that receives plaintext.",
    f"If this is a TLS port, use --tls here, or secure_channel in code. {_LOGS}",
)
_HANGS_UP_ON_TLS = Diagnosis(
    "The server hangs up: it requires a client certificate, or is not a TLS port.",
    f"Check whether the port speaks TLS, and whether it requires a certificate (--cert and --key). {_PROXY}",
)
_WORDS: tuple[tuple[str, Diagnosis], ...] = (
    ("WRONG_VERSION_NUMBER", Diagnosis("This is not a TLS port, but it may be a plaintext port.", _IN_PLAINTEXT)),
    (
        "certificate has expired",
        Diagnosis("The server's certificate expired.", "Renew it, or correct this machine's clock."),
    ),
    ("Hostname Verification Check failed", _OTHER_NAME),
    ("is not in peer certificate", _OTHER_NAME),
    ("CERTIFICATE_VERIFY_FAILED", _NOT_TRUSTED),
    (
        "Failed to create security handshaker",
        Diagnosis(
            "The certificates or the key given here cannot be used.",
            "Check that each file is PEM, and that --key belongs to --cert.",
        ),
    ),
    (
        "target uri is not valid",
        Diagnosis("grpcio cannot read this target.", "ipv4: and ipv6: need a port, and a Unix socket is unix:/path."),
    ),
    (
        "validating service config",
        Diagnosis("grpcio rejects grpc.service_config.", "Correct the field that the message names."),
    ),
    ("ALPN", _NO_ALPN),
    ("http1.x server", _HTTP1),
    ("Expected SETTINGS frame", Diagnosis("This is not a gRPC server: it does not speak HTTP/2.", _ANOTHER_PORT)),
    ("Domain name not found", _NO_HOST),
    ("Misformatted domain name", _NO_HOST),
    (
        "no SETTINGS frame within",
        Diagnosis("No answer within the time limit, or the server accepted the connection but sent nothing.", _SILENT),
    ),
)
_HANGING_UP = ("Socket closed", "Connection reset", "Delayed close", "Handshake read failed", "hung up")


def read_reason(failure: Failure, *, tls: bool, unix: bool) -> Diagnosis | None:
    """Explain a channel's failure from its text alone; None if the text is not enough."""
    of_sockets = ((os.strerror(number), diagnosis) for number, diagnosis in _tcp_diagnoses(unix=unix).items())
    known = (*of_sockets, *_WORDS, *_ALERTS)
    found = next((diagnosis for words, diagnosis in known if words in failure.reason), None)
    if found is None and any(words in failure.reason for words in _HANGING_UP):
        found = _HANGS_UP_ON_TLS if tls else _HANGS_UP
    return _of_a_socket(found) if found and unix else found
