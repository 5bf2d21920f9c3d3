"""What the failure of one attempt means, and what to do about it.

Most failures say it themselves. Where two causes look the same from outside, a second look at the server decides
(`looks.py`).
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from grpc_backoff.config.target import Address
from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.connection.events import Failure, Stage
from grpc_backoff.probe.dial import ALPN
from grpc_backoff.probe.looks import look_at_certificate, look_for_tls, look_in_plaintext
from grpc_backoff.probe.stages import NoSettings, Security, WrongAlpn
from grpc_backoff.probe.wire import describe

__all__ = ["Circumstances", "Diagnosis", "diagnose", "diagnose_loss", "diagnose_settings", "read_reason"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What it means, and what to do about it."""

    meaning: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What was tried when it failed.

    Attributes:
        address: the server's; None where none was reached.
        server_name: whom its certificate had to be for.
        tls: whether TLS was tried.
        shows_certificate: whether a client certificate was there to be shown.
        unix: whether the target is a Unix socket.
    """

    address: Address | None
    server_name: str
    tls: bool
    shows_certificate: bool = False
    unix: bool = False


async def diagnose(error: ConnectError, tried: Circumstances) -> Diagnosis:
    """Return what a failed attempt means; may look at the server again, for a few seconds."""
    found = await _diagnose(error, tried)
    return _of_a_socket(found) if tried.unix else found


def _of_a_socket(diagnosis: Diagnosis) -> Diagnosis:
    """Say the same of a Unix socket, which has no port."""
    return Diagnosis(diagnosis.meaning.replace(" port", " socket"), diagnosis.advice.replace(" port", " socket"))


async def _diagnose(error: ConnectError, tried: Circumstances) -> Diagnosis:
    cause = error.__cause__
    if error.failure.stage is Stage.RESOLVE:
        return _resolve(cause)
    if error.failure.stage is Stage.TCP or tried.address is None:
        return _tcp(cause, unix=tried.unix)
    if error.failure.stage is Stage.TLS:
        return await _tls(cause, tried, tried.address)
    return await _settings(cause, tried, tried.address)


def diagnose_settings(settings: Mapping[str, int]) -> Diagnosis | None:
    """Return what is wrong with a server's SETTINGS, if something is."""
    if settings.get("MAX_CONCURRENT_STREAMS") == 0:
        return Diagnosis(
            "MAX_CONCURRENT_STREAMS is 0: the server takes the connection, but no call on it.",
            "It may raise it later. If it does not, look for limits and for draining at the server.",
        )
    return None


def diagnose_loss(loss: Loss) -> Diagnosis:
    """Return what it means that a connection ended right behind its SETTINGS."""
    if loss.graceful:
        return Diagnosis(
            "SETTINGS came, and the server took its leave at once, as one does that is shutting down.",
            "Try again in a moment. If it stays so, look for a very short max_connection_age at the server.",
        )
    if loss.reason.startswith("GOAWAY"):
        return Diagnosis(
            "SETTINGS came, and the server sent the client away.",
            "Its words are above. ENHANCE_YOUR_CALM means too many pings or connections: compare keepalive settings.",
        )
    return Diagnosis(
        "SETTINGS came, and the connection ended at once, as with a proxy whose upstream is down.",
        "See whether the server behind the proxy is up, and whether the proxy speaks HTTP/2 to it.",
    )


# Name resolution.

_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


_NO_HOST = Diagnosis(
    "There is no host of this name, as far as this machine's resolver knows.",
    "Check the spelling, and which name server this machine asks. A Unix socket is written unix:/path.",
)


def _resolve(cause: BaseException | None) -> Diagnosis:
    if isinstance(cause, UnicodeError) or (isinstance(cause, socket.gaierror) and cause.errno in _NO_SUCH_NAME):
        return _NO_HOST
    if isinstance(cause, TimeoutError) or (isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN):
        return Diagnosis("No name server answered.", "Check this machine's network, and which name server it asks.")
    return Diagnosis("The name could not be resolved.", "The reason above is the resolver's.")


# TCP, and the connecting of Unix sockets.

_TCP = {
    errno.ECONNREFUSED: Diagnosis(
        "Nothing listens there.",
        "See whether the server runs, and whether this is its port. In a container it has to listen on 0.0.0.0 or "
        "[::], not on 127.0.0.1.",
    ),
    errno.ENOENT: Diagnosis(
        "There is no such socket file.", "See whether the server runs, and where it makes its socket."
    ),
    errno.EACCES: Diagnosis("This user may not connect to it.", "Check the permissions of the socket and its folder."),
    # A Unix socket whose server has no room for one more.
    errno.ENOTCONN: Diagnosis("The server accepts no more connections.", "See whether it hangs or is overloaded."),
}
_UNIX = {
    errno.ECONNREFUSED: Diagnosis(
        "There is a file of this name, and nothing listens on it.",
        "See whether the server runs: a socket file outlives its server. See also whether it is a socket at all.",
    ),
    errno.EPROTOTYPE: Diagnosis(
        "It is a Unix socket of another kind.", "gRPC needs a stream socket: see which server made this one."
    ),
}
"""What differs where the socket is a file."""
_NO_WAY = Diagnosis(
    "There is no way to the host from here.", "Check routes and VPN; for an IPv6 address, whether there is IPv6 here."
)
_TOO_LONG = Diagnosis(
    "The path is longer than a Unix socket's may be.", "Use a shorter one: the system takes about a hundred bytes."
)
_TCP |= dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL), _NO_WAY)


def _tcp(cause: BaseException | None, *, unix: bool) -> Diagnosis:
    if unix and isinstance(cause, OSError) and "too long" in str(cause):  # Python's own word, without a number
        return _TOO_LONG
    if isinstance(cause, TimeoutError):
        return Diagnosis(
            "Nobody answers: packets are thrown away on the way, or the host is down.",
            "Check the address, and firewalls and security groups between here and there.",
        )
    number = cause.errno if isinstance(cause, OSError) else None
    known = _TCP | _UNIX if unix else _TCP
    return known.get(number or 0) or Diagnosis("No socket could be connected.", "The reason above is the system's.")


# TLS.

_HTTP2_BEHIND_TLS = (
    "gRPC needs HTTP/2, agreed on by ALPN. Turn HTTP/2 on at the server or proxy, or name the gRPC server's own port."
)
_IN_PLAINTEXT = "Leave --tls, --ca, --cert and --key away; in code, use insecure_channel."
_WITH_TLS = "Speak TLS with it: --tls here, secure_channel in code."
_ANOTHER_PORT = "Name the port of the gRPC server: this is another server, or a proxy that does not speak HTTP/2."
_SILENT = "See whether the process is alive: the kernel accepts for it. See also whether this is a gRPC server's port."
_SAY_THE_NAME = "Dial it by its right name, or say that: --option grpc.ssl_target_name_override=NAME."
_PROXY = "A proxy whose upstream is down does this too."
_LOGS = "A proxy whose upstream is down does this, and a server at its limit of connections: look into their logs."
_SHOW_ONE = "Show one with --cert and --key; in code, ssl_channel_credentials takes both."
_SHOW_ANOTHER = "Show one that has not expired, of an authority that the server trusts."

_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAME = {62, 64}
"""OpenSSL's numbers for a host name and an IP address that are not the certificate's."""
_UNTRUSTED = {2, 18, 19, 20, 21}
"""Those for an issuer that is not there or not trusted, and for certificates that sign themselves."""

_NOT_TRUSTED = Diagnosis(
    "The server's certificate is not signed by a trusted CA.",
    "Give the CA's certificate with --ca; in code, as root_certificates.",
)
_WANTS_CERTIFICATE = Diagnosis("The server wants a client certificate.", _SHOW_ONE)
_REFUSES_CERTIFICATE = Diagnosis("The server does not accept the client certificate.", _SHOW_ANOTHER)
_NO_ALPN = Diagnosis("It is a TLS port of a server that does not offer HTTP/2 by ALPN.", _HTTP2_BEHIND_TLS)
_OTHER_VERSION = Diagnosis(
    "The server speaks none of the versions of TLS that are used here.", "Let it use TLS 1.2 or newer."
)
_NO_COMMON_WAY = Diagnosis(
    "The server finds no way of TLS that both sides know, or it wants a client certificate.",
    "Compare the ciphers of both sides. If it wants a certificate, show one with --cert and --key.",
)
_UNKNOWN_NAME = Diagnosis("The server has no certificate for the name that it was asked for.", _SAY_THE_NAME)

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
"""What a server means that breaks off TLS with a word; OpenSSL's names for the words have prefixes of all kinds."""


async def _tls(cause: BaseException | None, tried: Circumstances, address: Address) -> Diagnosis:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate(cause.verify_code, await look_at_certificate(address, tried.server_name))
    if isinstance(cause, WrongAlpn):
        return _alpn(await look_for_tls(address, tried.server_name))
    said = getattr(cause, "reason", None) or ""  # of an SSLError, most of the time
    for word, diagnosis in _ALERTS:
        if word in said:
            refuses_nothing = diagnosis is _REFUSES_CERTIFICATE and not tried.shows_certificate
            return _WANTS_CERTIFICATE if refuses_nothing else diagnosis
    return await _no_tls(cause, tried, address)


def _certificate(code: int, seen: Security | None) -> Diagnosis:
    certificate = seen.certificate if seen else None
    whose = since = until = ""
    if certificate is not None:
        names = ", ".join(certificate.names) or "no name"
        whose = f" It is {certificate.subject}, for {names}, by {certificate.issuer}."
        since, until = _on(certificate.not_before), _on(certificate.not_after)
    if code == _EXPIRED:
        meaning, advice = f"The server's certificate expired{until}.", "Renew it. If that is wrong, set the clock here."
    elif code == _NOT_YET_VALID:
        meaning, advice = f"The server's certificate becomes valid{since}.", "Check the clock here, then the server's."
    elif code in _WRONG_NAME:
        meaning, advice = "The server's certificate is for another name.", _SAY_THE_NAME
    elif code in _UNTRUSTED:
        meaning, advice = _NOT_TRUSTED.meaning, _NOT_TRUSTED.advice
    else:
        meaning, advice = "The server's certificate does not hold.", "The reason above is OpenSSL's."
    return Diagnosis(meaning + whose, advice)


def _on(moment: datetime | None) -> str:
    return f" on {moment:%Y-%m-%d %H:%M} UTC" if moment else ""


def _alpn(seen: Security | None) -> Diagnosis:
    if seen is None or seen.alpn in (None, ALPN):
        return _NO_ALPN
    return Diagnosis(f"It is a TLS port, and behind TLS it speaks {seen.alpn} only.", _HTTP2_BEHIND_TLS)


async def _no_tls(cause: BaseException | None, tried: Circumstances, address: Address) -> Diagnosis:
    """Say what a server is that does not finish a TLS handshake."""
    seen = await look_in_plaintext(address)
    if seen.settings:
        return Diagnosis("It is a plaintext port: without TLS it speaks HTTP/2.", _IN_PLAINTEXT)
    if seen.head.startswith(b"HTTP/"):
        return Diagnosis("It is a plaintext port of an HTTP/1 server.", _ANOTHER_PORT)
    if seen.head and not seen.head.startswith(_TLS_ALERT):
        return Diagnosis(f"It is no TLS port: in plaintext, {describe(seen.head)}.", _ANOTHER_PORT)
    if isinstance(cause, TimeoutError):
        return Diagnosis(
            "The server accepts the connection and does not answer: it hangs, or is no TLS server.", _SILENT
        )
    maybe = "" if tried.shows_certificate else " With TLS 1.2, one that wants a client certificate does so."
    return Diagnosis(f"The server hangs up on a TLS handshake.{maybe}", f"Look into the server's log. {_PROXY}")


# SETTINGS.

_TLS_ALERT, _TLS_HANDSHAKE = b"\x15\x03", b"\x16\x03"


async def _settings(cause: BaseException | None, tried: Circumstances, address: Address) -> Diagnosis:
    found = cause if isinstance(cause, NoSettings) else NoSettings(b"", cause)
    if tried.tls:
        return await _settings_behind_tls(found, tried, address)
    seen = await look_for_tls(address, tried.server_name)
    if seen is not None:
        wrong = "" if seen.alpn == ALPN else f" Behind it there is {seen.alpn or 'no ALPN'}, where gRPC needs {ALPN}."
        return Diagnosis(f"It is a TLS port: a TLS handshake with it succeeds ({seen.version}).{wrong}", _WITH_TLS)
    if found.head.startswith((_TLS_ALERT, _TLS_HANDSHAKE)):
        return Diagnosis("It is a TLS port: it answers in TLS.", _WITH_TLS)
    return _no_settings(found)


async def _settings_behind_tls(found: NoSettings, tried: Circumstances, address: Address) -> Diagnosis:
    if found.head or isinstance(found.error, TimeoutError):
        return _no_settings(found)
    hangs_up = "The server hangs up right behind the TLS handshake"
    if tried.shows_certificate:
        return Diagnosis(f"{hangs_up}. It may not accept the client certificate.", f"{_SHOW_ANOTHER} {_PROXY}")
    if await look_for_tls(address, tried.server_name, newest=ssl.TLSVersion.TLSv1_2) is None:
        # TLS 1.3 is over on this side before the server misses a certificate, TLS 1.2 is not.
        return Diagnosis(f"{hangs_up}, as one does that wants a client certificate.", f"{_SHOW_ONE} {_PROXY}")
    return Diagnosis(f"{hangs_up}.", _LOGS)


def _no_settings(found: NoSettings) -> Diagnosis:
    if found.head.startswith(b"HTTP/"):
        return Diagnosis("It is an HTTP/1 server.", _ANOTHER_PORT)
    if found.head:
        return Diagnosis(f"It is no gRPC server: {describe(found.head)}.", _ANOTHER_PORT)
    if isinstance(found.error, TimeoutError):
        return Diagnosis(
            "The server accepts the connection and stays silent: it hangs, is overloaded, or is no HTTP/2 server.",
            _SILENT,
        )
    return Diagnosis("The server accepts the connection and hangs up.", _LOGS)


# The words of grpc's core, which a channel has its failures from.

_HANGS_UP = Diagnosis(
    "The server accepts the connection and hangs up, as a TLS port does that is spoken to in plaintext.",
    f"If it is a TLS port: --tls here, secure_channel in code. {_LOGS}",
)
_HANGS_UP_ON_TLS = Diagnosis(
    "The server hangs up, as one does that wants a client certificate, or is no TLS port.",
    f"See whether the port speaks TLS, and whether it wants a certificate (--cert and --key). {_PROXY}",
)
_WORDS: tuple[tuple[str, Diagnosis], ...] = (
    ("Connection refused", _TCP[errno.ECONNREFUSED]),
    ("No such file or directory", _TCP[errno.ENOENT]),
    ("Permission denied", _TCP[errno.EACCES]),
    ("Network is unreachable", _NO_WAY),
    ("No route to host", _NO_WAY),
    ("Cannot assign requested address", _NO_WAY),
    ("WRONG_VERSION_NUMBER", Diagnosis("It is no TLS port: it may be a plaintext one.", _IN_PLAINTEXT)),
    ("certificate has expired", Diagnosis("The server's certificate expired.", "Renew it, or set the clock here.")),
    ("Hostname Verification Check failed", Diagnosis("The server's certificate is for another name.", _SAY_THE_NAME)),
    ("is not in peer certificate", Diagnosis("The server's certificate is for another name.", _SAY_THE_NAME)),
    ("CERTIFICATE_VERIFY_FAILED", _NOT_TRUSTED),
    ("ALPN", _NO_ALPN),
    ("http1.x server", Diagnosis("It is an HTTP/1 server.", _ANOTHER_PORT)),
    ("Domain name not found", _NO_HOST),
    ("Misformatted domain name", _NO_HOST),
    (
        "no SETTINGS frame within",
        Diagnosis("Nobody answered within the limit, or the server accepted and stayed silent.", _SILENT),
    ),
)
_HANGING_UP = ("Socket closed", "Connection reset", "Delayed close", "Handshake read failed", "hung up")
_UNIX_WORDS = (
    ("Connection refused", _UNIX[errno.ECONNREFUSED]),
    ("Protocol wrong type for socket", _UNIX[errno.EPROTOTYPE]),
)


def read_reason(failure: Failure, *, tls: bool, unix: bool) -> Diagnosis | None:
    """Return what a channel's failure means, from its words alone; None where they do not tell."""
    known = (*(_UNIX_WORDS if unix else ()), *_WORDS, *_ALERTS)
    found = next((diagnosis for words, diagnosis in known if words in failure.reason), None)
    if found is None and any(words in failure.reason for words in _HANGING_UP):
        found = _HANGS_UP_ON_TLS if tls else _HANGS_UP
    return _of_a_socket(found) if found and unix else found
