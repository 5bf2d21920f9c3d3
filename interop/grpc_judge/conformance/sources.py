"""Where the rules come from: what to read about a clause."""

from __future__ import annotations

from typing import Final

from grpc_judge.conformance.clause import Clause, Level

_BACKOFF: Final = "https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md"
_OURS: Final = "https://github.com/grpc-backoff/grpc-backoff/blob/main/docs/behaviour.md"
_SOURCES: Final = {
    "CH-3": "https://github.com/grpc/grpc/blob/master/doc/wait-for-ready.md",
    "CH-6": "https://www.rfc-editor.org/rfc/rfc9113.html#section-6.8",
    "CH-7": "https://github.com/grpc/proposal/blob/master/A6-client-retries.md#transparent-retries",
}


def source(clause: Clause) -> str:
    """Return the address of the document that the clause follows: gRPC's protocol unless it is a recommendation."""
    if clause.level is Level.RECOMMENDED:
        return _OURS
    return _SOURCES.get(clause.rule, _BACKOFF)
