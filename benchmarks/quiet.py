"""Counts what liveness costs in ten minutes: `python -m benchmarks.quiet [WHAT] [--minutes 10]`.

Each run prints a line of JSON for each subject: both APIs, of plain grpc and of this library. Without WHAT, all run at
the same time, each in a process of its own.

`pings` PING frames of the client, which has an open stream and makes a call every second, with `quiet_after` 0.2 s, as
        the options are, and without the core's own pings (`grpc.http2.bdp_probe`)
`slow`  a server that answers in 250 ms, under calls with deadlines of 200 ms and calls with 20 s, `quiet_after` 0.2 s
`news`  false news ten times a second while the server is down, with the cap at 120 s and at 2 s
`cpu`   CPU time with `quiet_after` 0.2 s and without, in turn, while calls are made and while only a stream is open
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import grpc_backoff
from benchmarks.holding import holding
from benchmarks.load import load, tell, together
from tests.both_apis.relay import Relay
from tests.sync.service import Echo, place

_QUIET = [("grpc_backoff.quiet_after", 0.2)]
_PREFACE, _HEADER = 24, 9
_PING, _ACK = 6, 1
_TURN = 2.0
"""How long each subject runs until it is the other's turn, in seconds."""


class _Frames:
    """A socket whose incoming HTTP/2 frames are counted."""

    def __init__(self, source: socket.socket, counts: Counter[str]) -> None:
        self._source, self._counts = source, counts
        self._left, self._header = _PREFACE, b""

    def recv(self, size: int) -> bytes:
        data = rest = self._source.recv(size)
        while rest:
            skipped, rest = rest[: self._left], rest[self._left :]
            self._left -= len(skipped)
            wanted = _HEADER - len(self._header)
            self._header, rest = self._header + rest[:wanted], rest[wanted:]
            if len(self._header) == _HEADER:
                self._left = int.from_bytes(self._header[:3], "big")
                if self._header[3] == _PING:
                    self._counts["acknowledgements" if self._header[4] & _ACK else "pings"] += 1
                self._counts["frames"] += 1
                self._header = b""
        return data


class _CountingRelay(Relay):  # type: ignore[misc]  # the tests are not typed
    """A relay that counts the frames that clients send."""

    def __init__(self, port: int) -> None:
        self.frames = Counter[str]()
        super().__init__(port)

    def _pump(self, source: Any, sink: Any, direction: str, lost: Any) -> None:
        super()._pump(_Frames(source, self.frames) if direction == "up" else source, sink, direction, lost)


class _Slow(Echo):  # type: ignore[misc]  # as above
    def Unary(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - the name and arguments are grpc's
        time.sleep(0.25)
        return request


def _on(api: Any) -> list[Any]:
    return _QUIET if api.ours else []


def _pings(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        (port, _), running = stack.enter_context(holding()), list[tuple[str, Any, Any, Any]]()
        for bdp in (1, 0):
            for api in together(stack):
                between = _CountingRelay(port)
                stack.callback(between.close)
                options = [*_on(api), *([] if bdp else [("grpc.http2.bdp_probe", 0)])]
                channel = stack.enter_context(api.channel(between.target, options))
                channel.ready()
                stream = channel.begin("Down")
                assert stream.read() == "a"
                codes = stack.enter_context(load(channel, 1, 1.0))
                running.append(("as they are" if bdp else "none", api, between, (codes, stream)))
        time.sleep(seconds)
        for core, api, between, (codes, stream) in running:
            told = {"calls": dict(codes), "stream_open": not stream.done(), "connections": between.connections}
            tell("quiet", "pings", api, pings_of_the_core=core, **dict(between.frames), **told)
            stream.cancel()


def _slow(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        server, running = stack.enter_context(place(_Slow())), list[Any]()
        for api in together(stack):
            between = Relay(server.port)
            stack.callback(between.close)
            channel = stack.enter_context(api.channel(between.target, _on(api)))
            channel.ready()
            short = stack.enter_context(load(channel, 2, 0.05, timeout=0.2))
            running.append((api, between, short, stack.enter_context(load(channel, 2, 0.5))))
        time.sleep(seconds)
        for api, between, short, long in running:
            told = {"with_200_ms": dict(short), "with_20_s": dict(long), "connections": between.connections}
            tell("quiet", "slow", api, **told)


def _news(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        down, running = stack.enter_context(place(up=False)), list[Any]()
        for cap in (120_000, 2_000):
            for api in together(stack):
                if api.ours:
                    events = list[Any]()
                    options = [*_QUIET, ("grpc.max_reconnect_backoff_ms", cap)]
                    channel = stack.enter_context(api.channel(down.target, options, listeners=[events.append]))
                    channel.begin("Down", ["a"], wait_for_ready=True, timeout=seconds + 60)
                    running.append((cap, api, events))
        end, told = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            grpc_backoff.network_changed()
            told += 1
            time.sleep(0.1)
        for cap, api, events in running:
            numbers = [event.attempt for event in events if isinstance(event, grpc_backoff.AttemptStarted)]
            by_number = Counter(numbers)
            tell(
                "quiet",
                "news",
                api,
                cap=cap / 1000,
                news=told,
                planned_attempts=len(by_number),
                attempts=len(numbers),
                most_for_a_gap=max(by_number.values()) - 1,
                schedule_resets=sum(after < before for before, after in itertools.pairwise(numbers)),
            )


def _cpu(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        port, _ = stack.enter_context(holding())
        apis = [api for api in together(stack) if api.ours]
        open_channels = {
            (api, quiet): stack.enter_context(api.channel(f"127.0.0.1:{port}", _QUIET * quiet))
            for api in apis
            for quiet in (False, True)
        }
        for channel in open_channels.values():
            channel.ready()
        used = dict[tuple[str, Any, bool], list[float]]()
        end, works = time.monotonic() + seconds, {"calls": _calls, "a stream": _stream}
        order = (False, True)
        while time.monotonic() < end:
            order = order[::-1]
            for what, work in works.items():
                for api in apis:
                    for quiet in order:
                        with work(open_channels[api, quiet]) as made:
                            began, before = time.process_time(), made()
                            time.sleep(_TURN)
                            spent = time.process_time() - began
                            used.setdefault((what, api, quiet), []).append(spent / (made() - before) * 1e6)
        for what, unit in (("calls", "us_of_cpu_for_a_call"), ("a stream", "us_of_cpu_for_a_second")):
            for api in apis:
                off, on = (used[what, api, quiet] for quiet in (False, True))
                ratios = sorted(b / a for a, b in zip(off, on, strict=True))
                figures = {"off": round(median(off), 1), "on": round(median(on), 1), "turns": len(off)}
                figures |= {"ratio": round(median(ratios), 3), "least": round(ratios[0], 3)}
                tell("quiet", "cpu", api, while_there_are=what, unit=unit, **figures, most=round(ratios[-1], 3))


@contextlib.contextmanager
def _calls(channel: Any) -> Iterator[Callable[[], float]]:
    """Make calls; yield a function that returns their number."""
    with load(channel, pause=0.01) as codes:
        yield lambda: sum(codes.values())
        assert set(codes) == {"OK"}, codes


@contextlib.contextmanager
def _stream(channel: Any) -> Iterator[Callable[[], float]]:
    """Keep a stream open; yield a clock."""
    stream = channel.begin("Down")
    assert stream.read() == "a"
    yield time.monotonic
    assert not stream.done()
    stream.cancel()


_WHAT = {"pings": _pings, "slow": _slow, "news": _news, "cpu": _cpu}


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quiet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=_WHAT, nargs="?")
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    if given.what is not None:
        _WHAT[given.what](given.minutes * 60)
        return
    command = [sys.executable, "-m", "benchmarks.quiet", "--minutes", str(given.minutes)]
    running = [subprocess.Popen([*command, what]) for what in _WHAT]
    sys.exit(max(each.wait() for each in running))


if __name__ == "__main__":
    main()
