"""Who answers calls on a connection: the server, or a proxy in front of it, which may have lost the server.

An HTTP proxy keeps its connections while its upstream is dead, and answers each call itself. So a connection that is up
says little about the server. One call of the health service shows who is there. No input makes this module raise.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from urllib.parse import unquote

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.policy.checks import STATUS_CODES

_CODES = ("OK", *STATUS_CODES)
_SERVING = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
"""The statuses of a HealthCheckResponse, by number."""
_RESPONSE = rb"\x00....(?:\x08([\x00-\x03]))?"
"""Matches a HealthCheckResponse in gRPC's frame, uncompressed."""
_ENVOY = r"(istio-)?envoy"
_FROM_UPSTREAM = "x-envoy-upstream-service-time"
"""The header that Envoy adds to what its upstream has answered."""


class Answerer(enum.Enum):
    """Who answered a call."""

    SERVER = "server"
    PROXY = "proxy"
    NEITHER = "neither"


class Reply(NamedTuple):
    """The end of the call, as it arrived.

    Attributes:
        headers: the response headers, by name.
        trailers: the trailers, by name; empty if the headers ended the stream.
        body: the first bytes of the body.
        reset: the HTTP/2 error code with which the stream was reset; None if it was not.
    """

    headers: Mapping[str, str]
    trailers: Mapping[str, str]
    body: bytes = b""
    reset: int | None = None

    def _get(self, name: str) -> str:
        return self.trailers.get(name, self.headers.get(name, ""))

    @property
    def http(self) -> int | None:
        """The HTTP status; None if no headers have arrived."""
        text = self.headers.get(":status", "")
        return int(text) if re.fullmatch(r"(?a)\d{3}", text) else None

    @property
    def code(self) -> str:
        """The name of gRPC's status code; empty if there is none."""
        text = self._get("grpc-status")
        return _CODES[int(text)] if re.fullmatch(r"(?a)\d|1[0-6]", text) else ""

    @property
    def details(self) -> str:
        """The status details."""
        return unquote(self._get("grpc-message"))

    @property
    def by(self) -> str:
        """What the header `server` says, or else `via`; empty if there is neither."""
        return self._get("server") or self._get("via")

    @property
    def health(self) -> str:
        """The status in the response: SERVING or another; empty if there is none."""
        found = re.match(_RESPONSE, self.body, re.DOTALL) if self.code == "OK" else None
        return _SERVING[(found[1] or b"\x00")[0]] if found else ""

    @property
    def answerer(self) -> Answerer:
        """Who has answered.

        Whatever is not gRPC comes from a proxy (or there is no gRPC server at all). Envoy answers in gRPC, with one
        header frame and without the header that it adds to its upstream's answers.
        """
        if self.http is None or self.reset is not None:
            return Answerer.NEITHER
        if self.http != 200 or not self._get("content-type").startswith("application/grpc"):  # noqa: PLR2004 - HTTP's OK
            return Answerer.PROXY
        envoys = re.match(_ENVOY, self.by) is not None and _FROM_UPSTREAM not in self.headers
        return Answerer.PROXY if envoys and not self.trailers else Answerer.SERVER

    @property
    def status(self) -> str:
        """The status in words, such as `HTTP 502, server nginx/1.22.1`."""
        if self.reset is not None:
            words = [f"RST_STREAM {self.reset}"]
        elif self.code:
            words = [f"{self.code} {self.details!r}" if self.details else self.code]
        else:
            missing = ", no gRPC status" if self.answerer is Answerer.SERVER else ""
            words = [f"HTTP {self.http}{missing}"]
        return ", ".join([*words, *([f"server {self.by}"] if self.by else [])])


def describe_reply(reply: Reply | None) -> str:
    """Return one line about the answer to the health check; None is that there was none."""
    if reply is None:
        return "no answer to a call"
    match reply.answerer:
        case Answerer.PROXY:
            return f"a proxy answered a call in place of the server: {reply.status}"
        case Answerer.NEITHER:
            return f"a call was cut: {reply.status}"
        case _:
            return f"the server answers calls: {reply.health or reply.status}"
