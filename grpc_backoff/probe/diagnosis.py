"""Finds out what a failed attempt, or a connection that does not serve, means.

Most failures can be explained from the error alone. If two causes look the same from outside, further probes of the
server distinguish them (`looks.py`). The texts are in `diagnoses.py`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import datetime

from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.decide.connections.events import Stage
from grpc_backoff.probe import diagnoses
from grpc_backoff.probe.diagnoses import Diagnosis
from grpc_backoff.probe.dial import ALPN
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.looks import look_at_certificate, look_for_tls, look_in_plaintext
from grpc_backoff.probe.reply import Answerer, Reply
from grpc_backoff.probe.stages import NoSettings, NoTunnel, Security, WrongAlpn
from grpc_backoff.probe.wire import HALF, INVALID, TLS_ALERT, TLS_HANDSHAKE, VIOLATIONS, describe

_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAME = {62, 64}
"""OpenSSL's codes for a certificate that is not valid for the host name or the IP address."""
_UNTRUSTED = {2, 18, 19, 20, 21}
"""OpenSSL's codes for a missing or untrusted issuer, and for self-signed certificates."""
_REFUSALS = range(400, 500)
"""The HTTP statuses with which a proxy refuses a call that it could have passed on."""


async def diagnose(error: ConnectError, tried: Http2Connector) -> Diagnosis:
    """Explain an attempt that has failed with this error; this may probe the server again, for a few seconds."""
    found = await _diagnose(error, tried)
    return found.of_a_socket() if tried.target.unix else found


async def _diagnose(error: ConnectError, tried: Http2Connector) -> Diagnosis:
    stage, cause = error.failure.stage, error.__cause__
    if isinstance(cause, NoTunnel):
        return diagnoses.REFUSED_TUNNELS.get(cause.status, diagnoses.NO_TUNNEL)
    if stage is Stage.RESOLVE:
        found, what = _resolve(cause), "name"
    elif stage is Stage.TCP or (tried.address is None and tried.proxy is None):
        found, what = _tcp(cause, unix=tried.target.unix), "address"
    else:
        return await (_tls if stage is Stage.TLS else _settings)(cause, tried)
    return found._replace(advice=f"{found.advice} This is the {what} of the HTTP proxy.") if tried.proxy else found


def diagnose_settings(settings: Mapping[str, int]) -> Diagnosis | None:
    """Return what is wrong with a server's SETTINGS; None if nothing is."""
    return diagnoses.NO_STREAMS if settings.get("MAX_CONCURRENT_STREAMS") == 0 else None


def diagnose_loss(loss: Loss) -> Diagnosis:
    """Explain a connection that ended right after SETTINGS."""
    if loss.graceful:
        return diagnoses.SHUTS_DOWN
    if loss.reason.startswith("GOAWAY"):
        return diagnoses.COMPLAINS
    return diagnoses.VIOLATES if loss.reason.startswith(VIOLATIONS) else diagnoses.TURNS_AWAY


def diagnose_reply(reply: Reply | None) -> Diagnosis | None:
    """Return what is wrong with the answer to the health check; None if the server has answered and serves."""
    if reply is None:
        return diagnoses.NO_ANSWER
    if reply.answerer is Answerer.NEITHER:
        return diagnoses.CUT
    if reply.answerer is Answerer.PROXY:
        return diagnoses.REFUSED_CALL if reply.http in _REFUSALS else diagnoses.NOT_BEHIND
    if not reply.code:
        return diagnoses.NO_STATUS
    if reply.health in ("NOT_SERVING", "UNKNOWN"):
        return Diagnosis(
            f"The server is up and says that it is {reply.health}.",
            "Wait until it has started or drained, or see its log.",
        )
    return None


def _resolve(cause: BaseException | None) -> Diagnosis:
    number = cause.errno if isinstance(cause, socket.gaierror) else None
    if isinstance(cause, UnicodeError) or number in _NO_SUCH_NAME:
        return diagnoses.NO_HOST
    if isinstance(cause, TimeoutError) or number == socket.EAI_AGAIN:
        return diagnoses.NO_NAME_SERVER
    return diagnoses.NOT_RESOLVED


def _tcp(cause: BaseException | None, *, unix: bool) -> Diagnosis:
    if isinstance(cause, TimeoutError):
        return diagnoses.DROPPED_PACKETS
    number = cause.errno if isinstance(cause, OSError) else None
    return diagnoses.socket_errors(unix=unix).get(number or 0, diagnoses.NOT_CONNECTED)


async def _tls(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate(cause.verify_code, await look_at_certificate(tried.address, tried.server_name))
    # Without a name for the reason, Python has OpenSSL's text of it.
    reason = getattr(cause, "reason", None) or str(cause).upper().replace(" ", "_")
    found = next((diagnosis for word, diagnosis in diagnoses.ALERTS.items() if word in reason), None)
    if found is diagnoses.REFUSES_CERTIFICATE and not tried.shows_certificate:
        return diagnoses.WANTS_CERTIFICATE
    if found is not None and found is not diagnoses.NO_ALPN:
        return found
    # Apache answers with a protocol that was not offered, which ends the handshake like an error of TLS.
    hangs = isinstance(cause, TimeoutError)
    seen = None if hangs else await look_for_tls(tried.address, tried.server_name)
    if seen is not None and seen.alpn not in (None, ALPN):
        return Diagnosis(f"This is a TLS port that speaks only {seen.alpn}.", diagnoses.HTTP2_BEHIND_TLS)
    if found is not None or isinstance(cause, WrongAlpn):
        return diagnoses.NO_ALPN
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
        **dict.fromkeys(_WRONG_NAME, diagnoses.OTHER_NAME),
        **dict.fromkeys(_UNTRUSTED, diagnoses.NOT_TRUSTED),
    }
    meaning, advice = known.get(code, diagnoses.NOT_VALID)
    return Diagnosis(meaning + whose, advice)


def _on(moment: datetime | None) -> str:
    return f" on {moment:%Y-%m-%d %H:%M} UTC" if moment else ""


async def _no_tls(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    """Explain a server that does not complete a TLS handshake."""
    head = await look_in_plaintext(tried.address)
    if head is None:
        return diagnoses.PLAINTEXT_PORT
    if head.startswith(b"HTTP/"):
        return diagnoses.PLAINTEXT_HTTP1
    if head and not head.startswith(TLS_ALERT):
        return Diagnosis(f"This is not a TLS port: in plaintext, {describe(head)}.", diagnoses.ANOTHER_PORT)
    if isinstance(cause, TimeoutError):
        return diagnoses.SILENT_IN_TLS
    maybe = "" if tried.shows_certificate else " With TLS 1.2, a server that requires a client certificate does this."
    return Diagnosis(
        f"The server hangs up during the TLS handshake.{maybe}", f"Check the server's log. {diagnoses.PROXY}"
    )


async def _settings(cause: BaseException | None, tried: Http2Connector) -> Diagnosis:
    found = cause if isinstance(cause, NoSettings) else NoSettings(b"", cause)
    if tried.tls:
        return await _settings_behind_tls(found, tried)
    seen = await look_for_tls(tried.address, tried.server_name)
    if seen is not None:
        wrong = "" if seen.alpn == ALPN else f" It negotiates {seen.alpn or 'no ALPN'}, but gRPC needs {ALPN}."
        return Diagnosis(f"This is a TLS port: a TLS handshake succeeds ({seen.version}).{wrong}", diagnoses.WITH_TLS)
    if found.head.startswith((TLS_ALERT, TLS_HANDSHAKE)):
        return diagnoses.ANSWERS_IN_TLS
    return _no_settings(found)


async def _settings_behind_tls(found: NoSettings, tried: Http2Connector) -> Diagnosis:
    if found.head or isinstance(found.error, TimeoutError):
        return _no_settings(found)
    hangs_up = "The server hangs up right after the TLS handshake"
    if tried.shows_certificate:
        advice = f"{diagnoses.SHOW_ANOTHER} {diagnoses.PROXY}"
        return Diagnosis(f"{hangs_up}. It may have rejected the client certificate.", advice)
    older = ssl.TLSVersion.TLSv1_2
    if tried.address is not None and await look_for_tls(tried.address, tried.server_name, newest=older) is None:
        # In TLS 1.3, the handshake completes on this side before the server notices that a certificate is missing. In
        # TLS 1.2, it does not.
        advice = f"{diagnoses.SHOW_ONE} {diagnoses.PROXY}"
        return Diagnosis(f"{hangs_up}, like one that requires a client certificate.", advice)
    return Diagnosis(f"{hangs_up}.", diagnoses.LOGS)


def _no_settings(found: NoSettings) -> Diagnosis:
    if found.head.startswith(b"HTTP/"):
        return diagnoses.HTTP1
    came = describe(found.head) if found.head else ""
    if came == INVALID:
        return diagnoses.WRONG_SETTINGS
    if came not in ("", HALF):
        return diagnoses.NOT_GRPC
    if isinstance(found.error, TimeoutError):
        said = "stops in the middle of its first frame" if came else "sends nothing"
        return Diagnosis(
            f"The server accepts the connection but {said}: it hangs, is overloaded, or is not an HTTP/2 server.",
            diagnoses.SILENT,
        )
    return diagnoses.HANGS_UP
