"""Writes the page of a run: what happened to which server, the verdicts on our channel, and what the servers did."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import grpc

import grpc_backoff
from grpc_judge.matrix.scenarios import COMPRESSED
from grpc_judge.runner.written import machine
from grpc_judge.servers.case_results import CaseResult, CaseResults
from grpc_judge.servers.demands import DEMANDS
from grpc_judge.servers.happenings import COURSES, Happening
from grpc_judge.servers.notes import figures, notes
from grpc_judge.servers.server import Server

__all__ = ["page"]

_WIDTH = 120

_HOW_TO_READ = """\
This project's channel must follow its [rules](../behaviour.md) whatever happens to its server. Six workers make calls
continuously; three of them use `wait_for_ready`, and two ask for answers that take 0.4 s, so that some calls are always
running. `failed` counts all failed calls, of which there are many while a server is gone or frozen. `recovered` is the
time from the server's return to the first answer.

The servers, and the software that they use:
"""


def page(results: CaseResults) -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: CaseResults) -> Iterator[str]:
    command = "python -m interop servers" + (" --short" if results.short else "")
    yield "# Behaviour with other servers"
    yield ""
    yield from _wrapped(
        f"Measured on {results.began:%Y-%m-%d}, on {machine()}, with `{command}`. The channel is that of grpc_backoff "
        f"{grpc_backoff.__version__} on grpcio {grpc.__version__}, with INITIAL_BACKOFF {COMPRESSED.initial:g} s, "
        f"MAX_BACKOFF {COMPRESSED.cap:g} s and MIN_CONNECT_TIMEOUT {COMPRESSED.min_connect_timeout:g} s. The server "
        f"behind the proxies is the {results.upstream}."
    )
    yield ""
    yield _HOW_TO_READ
    for server in results.servers:
        versions = ", ".join(f"{name} {version}" for name, version in results.versions_of(server).items())
        yield f"- **{server.name}**: {versions}"
    for name, reason in results.missing.items():
        yield f"- **{name}**: left out, since {reason} is missing"
    yield ""
    yield from _table(results)
    yield ""
    yield from _legend(results)
    for server in results.servers:
        yield from _server(results, server)


def _table(results: CaseResults) -> Iterator[str]:
    yield "| server | what happens | calls | failed | recovered | connections | attempts | verdict |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for case in results.cases:
        cells = [case.server.name, case.happening.value, *figures(case.observation), _verdict(case)]
        yield f"| {' | '.join(cells)} |"


def _verdict(case: CaseResult) -> str:
    return "pass" if case.passed else "**fail**"


def _legend(results: CaseResults) -> Iterator[str]:
    happened = {case.happening for case in results.cases}
    yield "What happens to the server:"
    yield ""
    for happening in Happening:
        if happening in happened:
            yield from _wrapped(f"- **{happening.value}**: {COURSES[happening].says}")
    yield ""
    yield "What is required of the channel:"
    yield ""
    for demand in DEMANDS:
        if demand.happenings & happened:
            yield from _wrapped(f"- **{demand.name}** ({demand.rule}): {demand.says}")


def _server(results: CaseResults, server: Server) -> Iterator[str]:
    yield ""
    yield f"## {server.name}"
    for case in results.cases_of(server):
        yield ""
        yield from _wrapped(f"**{case.happening.value}**, {_verdict(case)}. {_said(case)}")
        for verdict in case.failed:
            yield ""
            yield from _wrapped(f"- {verdict.rule}, {verdict.clause}: {verdict}")
    if not server.graceful:
        yield ""
        yield "When it shuts down, this server also loses calls of plain grpcio, so `lost` does not apply to `drained`."


def _wrapped(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _said(case: CaseResult) -> str:
    return case.fault if case.observation is None else " ".join(notes(case.observation))
