"""The diagnoses: what can be wrong with a server or with the way to it, and what to do about it.

How a failure shows which of them is true, is in `diagnosis.py`, which needs h2; for the texts of grpc's core, it is at
the end of this module.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from grpc_backoff.decide.connections.events import Failure


class Diagnosis(NamedTuple):
    """What a failure means, and what to do about it."""

    meaning: str
    advice: str

    def of_a_socket(self) -> Diagnosis:
        """Adapt this to a Unix socket, which has no port."""
        return Diagnosis(self.meaning.replace(" port", " socket"), self.advice.replace(" port", " socket"))


# Advice that several diagnoses share.

HTTP2_BEHIND_TLS = (
    "gRPC needs HTTP/2, negotiated by ALPN. Enable HTTP/2 on the server or proxy, or use the gRPC server's own port."
)
IN_PLAINTEXT = "Omit --tls, --ca, --cert and --key; in code, use insecure_channel."
WITH_TLS = "Use TLS: --tls here, secure_channel in code."
ANOTHER_PORT = "Use the port of the gRPC server: this is another server, or a proxy that does not speak HTTP/2."
SILENT = (
    "Check whether the process is alive: the kernel accepts connections for it. "
    "Also check that this is a gRPC server's port."
)
SAY_THE_NAME = "Dial it by its correct name, or set the name: --option grpc.ssl_target_name_override=NAME."
PROXY = "A TCP proxy whose upstream is down does the same."
LOGS = "A TCP proxy whose upstream is down does this, or a server at its connection limit: check their logs."
SHOW_ONE = "Provide one with --cert and --key; in code, ssl_channel_credentials takes both."
SHOW_ANOTHER = "Provide one that has not expired, from a CA that the server trusts."
SPEAKS_WRONGLY = "Look at its log, and at that of a proxy in front of it; compare with another version of either."

# Name resolution.

NO_HOST = Diagnosis(
    "This machine's resolver does not know this host name.",
    "Check the spelling and the name server that this machine uses. For a Unix socket, write unix:/path.",
)
_NO_NAME = Diagnosis(
    "This is not a host name.",
    "Check the target. An IPv6 address needs brackets: [::1]:50051. A Unix socket is unix:/path.",
)
_NO_PORT = Diagnosis(
    "What follows the last colon of the target is not a port.", "Write HOST:PORT, with a number from 1 to 65535."
)
NO_NAME_SERVER = Diagnosis("No name server answered.", "Check this machine's network and the name server that it uses.")
NOT_RESOLVED = Diagnosis("The name could not be resolved.", "See the resolver's message above.")

# The tunnel through an HTTP proxy.

NO_TUNNEL = Diagnosis(
    "The HTTP proxy does not make the tunnel.",
    "Check that the address is that of an HTTP proxy that allows CONNECT, or bypass it for this host with no_proxy.",
)
_UNREACHED = Diagnosis(
    "The HTTP proxy could not connect to the server.", "Check the server, and whether the proxy reaches its host."
)
REFUSED_TUNNELS = {
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

DROPPED_PACKETS = Diagnosis(
    "No answer: packets are being dropped on the way, or the host is down.",
    "Check the address, and the firewalls and security groups in between.",
)
NOT_CONNECTED = Diagnosis("No socket connection could be made.", "See the system's message above.")
_NO_WAY = Diagnosis(
    "There is no route to the host from here.",
    "Check routes and VPN; for an IPv6 address, whether this machine has IPv6.",
)
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
    **dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL), _NO_WAY),
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


def socket_errors(*, unix: bool) -> Mapping[int, Diagnosis]:
    """Return the diagnoses for the numbers of the system's errors in connecting a socket."""
    return _TCP | _UNIX if unix else _TCP


# TLS.

NO_ALPN = Diagnosis("This is the TLS port of a server that does not offer HTTP/2 by ALPN.", HTTP2_BEHIND_TLS)
OTHER_NAME = Diagnosis("The server's certificate is for a different name.", SAY_THE_NAME)
NOT_TRUSTED = Diagnosis(
    "The server's certificate is not signed by a trusted CA.",
    "Provide the CA's certificate with --ca; in code, as root_certificates.",
)
NOT_VALID = Diagnosis("The server's certificate is not valid.", "See OpenSSL's message above.")
WANTS_CERTIFICATE = Diagnosis("The server requires a client certificate.", SHOW_ONE)
REFUSES_CERTIFICATE = Diagnosis("The server does not accept the client certificate.", SHOW_ANOTHER)
_OTHER_VERSION = Diagnosis(
    "The server supports none of the TLS versions that are used here.", "Enable TLS 1.2 or newer on it."
)
ALERTS = {
    "CERTIFICATE_REQUIRED": WANTS_CERTIFICATE,
    "ALERT_BAD_CERTIFICATE": REFUSES_CERTIFICATE,
    "ALERT_CERTIFICATE_EXPIRED": REFUSES_CERTIFICATE,
    "ALERT_CERTIFICATE_REVOKED": REFUSES_CERTIFICATE,
    "ALERT_CERTIFICATE_UNKNOWN": REFUSES_CERTIFICATE,
    "ALERT_UNKNOWN_CA": REFUSES_CERTIFICATE,
    "ALERT_NO_APPLICATION_PROTOCOL": NO_ALPN,
    "PROTOCOL_VERSION": _OTHER_VERSION,
    "UNSUPPORTED_PROTOCOL": _OTHER_VERSION,
    "ALERT_HANDSHAKE_FAILURE": Diagnosis(
        "The two sides have no TLS parameters in common, or the server requires a client certificate.",
        "Compare the ciphers of both sides. If a certificate is required, provide one with --cert and --key.",
    ),
    "UNRECOGNIZED_NAME": Diagnosis("The server has no certificate for the requested name.", SAY_THE_NAME),
}
"""The meaning of each TLS alert; OpenSSL's names for alerts have various prefixes."""

PLAINTEXT_PORT = Diagnosis("This is a plaintext port: it speaks HTTP/2 without TLS.", IN_PLAINTEXT)
PLAINTEXT_HTTP1 = Diagnosis("This is a plaintext port of an HTTP/1 server.", ANOTHER_PORT)
SILENT_IN_TLS = Diagnosis(
    "The server accepts the connection but does not answer: it hangs, or is not a TLS server.", SILENT
)

# SETTINGS.

ANSWERS_IN_TLS = Diagnosis("This is a TLS port: it answers in TLS.", WITH_TLS)
HTTP1 = Diagnosis("This is an HTTP/1 server.", ANOTHER_PORT)
NOT_GRPC = Diagnosis("This is not a gRPC server: see its answer above.", ANOTHER_PORT)
WRONG_SETTINGS = Diagnosis("The server speaks HTTP/2, but its SETTINGS are not valid: see above.", SPEAKS_WRONGLY)
HANGS_UP = Diagnosis("The server accepts the connection and hangs up.", LOGS)
NO_STREAMS = Diagnosis(
    "MAX_CONCURRENT_STREAMS is 0: the server accepts the connection, but no calls on it.",
    "It may raise this limit later. If it does not, check the server for limits and for draining.",
)

# The end of a connection right after SETTINGS.

SHUTS_DOWN = Diagnosis(
    "The server sent SETTINGS and then GOAWAY at once, like a server that is shutting down.",
    "Try again in a moment. If this persists, check the server for a very short max_connection_age.",
)
COMPLAINS = Diagnosis(
    "The server sent SETTINGS and then GOAWAY with an error.",
    "See its message above. ENHANCE_YOUR_CALM means too many pings or connections: compare keepalive settings.",
)
VIOLATES = Diagnosis("The server sent SETTINGS, and then what is not valid HTTP/2: see above.", SPEAKS_WRONGLY)
TURNS_AWAY = Diagnosis(
    "The server sent SETTINGS and closed the connection at once.",
    "It, or a proxy in front of it, turns connections away: check its limits and its log.",
)

# The answer to a call of the health service.

NO_ANSWER = Diagnosis(
    "The connection is up, but a call on it got no answer.",
    "Check whether the server, or the server behind a proxy, hangs. See quiet_after for channels that notice.",
)
CUT = Diagnosis(
    "The connection is up, but the stream of a call on it was reset.",
    "Check the log of the server, or of a proxy in front of it, for limits and for a server that died.",
)
REFUSED_CALL = Diagnosis(
    "The connection ends at a proxy, or at a web server, which refuses the call.",
    "Compare its routes and limits, and the credentials that it wants, with the call. It may treat the health service, "
    "which was called here, otherwise than other services.",
)
NOT_BEHIND = Diagnosis(
    "The connection ends at a proxy, and the server behind it has not answered the call.",
    "Check whether that server is up, its address in the proxy's configuration, and whether the proxy speaks HTTP/2 to "
    "it. Until then, calls fail although the channel is READY: only a retry policy repeats them.",
)
NO_STATUS = Diagnosis(
    "The server answers without a gRPC status that clients know, so calls on it fail.",
    "Check whether it, or a proxy in front of it, can send HTTP/2 trailers, in which gRPC has the status.",
)

# What only the texts of grpc's core say.

_CORE_WORDS = {
    "WRONG_VERSION_NUMBER": Diagnosis("This is not a TLS port, but it may be a plaintext port.", IN_PLAINTEXT),
    "certificate has expired": Diagnosis(
        "The server's certificate expired.", "Renew it, or correct this machine's clock."
    ),
    "Hostname Verification Check failed": OTHER_NAME,
    "is not in peer certificate": OTHER_NAME,
    "CERTIFICATE_VERIFY_FAILED": NOT_TRUSTED,
    "Failed to create security handshaker": Diagnosis(
        "The certificates or the key given here cannot be used.",
        "Check that each file is PEM, and that --key belongs to --cert.",
    ),
    "target uri is not valid": Diagnosis(
        "grpcio cannot read this target.", "ipv4: and ipv6: need a port, and a Unix socket is unix:/path."
    ),
    "validating service config": Diagnosis(
        "grpcio rejects grpc.service_config.", "Correct the field that the message names."
    ),
    "ALPN": NO_ALPN,
    "http1.x server": HTTP1,
    "Expected SETTINGS frame": Diagnosis("This is not a gRPC server: it does not speak HTTP/2.", ANOTHER_PORT),
    "Domain name not found": NO_HOST,
    "Misformatted domain name": _NO_NAME,
    "Failed to parse port in name": _NO_PORT,
    "no SETTINGS frame within": Diagnosis(
        "No answer within the time limit, or the server accepted the connection but sent nothing.", SILENT
    ),
}
"""The diagnoses for words in the core's texts; the first that is there counts."""
_HANGING_UP = ("Socket closed", "Connection reset", "Delayed close", "Handshake read failed", "hung up")
_CORE_HANGS_UP = Diagnosis(
    "The server accepts the connection and hangs up, like a TLS port that receives plaintext.",
    f"If this is a TLS port, use --tls here, or secure_channel in code. {LOGS}",
)
_CORE_HANGS_UP_ON_TLS = Diagnosis(
    "The server hangs up: it requires a client certificate, or is not a TLS port.",
    f"Check whether the port speaks TLS, and whether it requires a certificate (--cert and --key). {PROXY}",
)


def read_reason(failure: Failure, *, tls: bool, unix: bool) -> Diagnosis | None:
    """Explain a channel's failure from its text alone; None if the text is not enough."""
    of_sockets = {os.strerror(number): diagnosis for number, diagnosis in socket_errors(unix=unix).items()}
    known = of_sockets | _CORE_WORDS | ALERTS
    found = next((diagnosis for words, diagnosis in known.items() if words in failure.reason), None)
    if found is None and any(words in failure.reason for words in _HANGING_UP):
        found = _CORE_HANGS_UP_ON_TLS if tls else _CORE_HANGS_UP
    return found.of_a_socket() if found and unix else found
