"""A chaos kit for tests of any gRPC client: servers that fail on purpose, and assertions about what they saw.

The servers run on an event loop in a thread of their own, so clients of every kind can be tested: threads, asyncio, and
other processes. `pytest_plugin.py` has the fixtures. Without pytest::

    with Kit() as kit:
        server = kit.server([Step(AcceptClose(), times=3), Working()])
        ...  # a client that connects to server.target
        server.wait_for(connections=4)
        assert_backs_off(server.visits)
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from itertools import pairwise
from types import TracebackType
from typing import Any, Self, TypeVar

from grpc_backoff.testing import front as fronts
from grpc_judge.conformance import PROTOCOL, Terms
from grpc_judge.flaky import FlakyServer, Script, Tls, Working
from grpc_judge.relay import Relay
from grpc_judge.timeline import Request, Timeline, Visit

__all__ = [
    "Front",
    "Kit",
    "Server",
    "assert_backs_off",
    "assert_no_call_lost",
    "assert_no_flood",
    "assert_reconnects_within",
    "terms",
]

Result = TypeVar("Result")

_PATIENCE = 10.0
"""How long to wait for something that takes milliseconds, in seconds."""
_TWO_GAPS = 3
_WORKS = Working()


class Kit:
    """An event loop in a thread, and the servers and fronts on it; all of them end with the context."""

    def __enter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc-chaos", daemon=True)
        self._thread.start()
        self._open = AsyncExitStack()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close all servers, reset their connections, and end the thread."""
        try:
            self.run(self._open.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def server(self, script: Script = _WORKS, tls: Tls | None = None) -> Server:
        """Start a server that fails as the script says, on a free port.

        Raises:
            ValueError: the script is not valid.
        """
        return Server(self, self.run(self._open.enter_async_context(FlakyServer(script, tls))))

    def front(self) -> Front:
        """Start a front on a free port, which it refuses at first."""
        return Front(self, self.run(self._opened_front()))

    def run(self, work: Coroutine[Any, Any, Result], within: float = _PATIENCE) -> Result:
        """Run a coroutine on the kit's loop and return its result.

        Raises:
            TimeoutError: it took longer than `within` seconds; it is cancelled.
        """
        running: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(within)
        except TimeoutError:
            running.cancel()
            raise

    async def _opened_front(self) -> fronts.FlakyFront:
        flaky = await self._open.enter_async_context(fronts.FlakyFront())
        await flaky.refuse()
        return flaky


class Server:
    """A scripted server, for use from any thread. Its times are in seconds since it started.

    Attributes:
        target: where clients connect.
    """

    def __init__(self, kit: Kit, flaky: FlakyServer) -> None:
        """Take a server that runs on the kit's loop."""
        self._kit = kit
        self._flaky = flaky
        self.target = flaky.target

    @property
    def now(self) -> float:
        """The time on the server's clock."""
        return self._timeline().taken

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The connections that were accepted, in order."""
        return self._timeline().visits

    @property
    def gaps(self) -> list[float]:
        """The times between the connections, in seconds."""
        return _gaps(self.visits)

    @property
    def calls(self) -> list[Request]:
        """The requests that arrived, in order."""
        return sorted((call for visit in self.visits for call in visit.requests), key=lambda call: call.at)

    def play(self, script: Script) -> None:
        """Switch to another script, which applies to the connections from now on.

        Raises:
            ValueError: the script is not valid.
        """
        self._kit.run(_called(lambda: self._flaky.play(script)))

    def break_all(self) -> None:
        """Reset every open connection."""
        self._kit.run(_called(self._flaky.break_all))

    def wait_for(self, *, connections: int = 0, ended: int = 0, within: float = _PATIENCE) -> None:
        """Wait until this many connections have been accepted, and this many have ended.

        Raises:
            AssertionError: that took longer than `within` seconds.
        """
        try:
            self._kit.run(self._flaky.wait_for(connections, ended), within)
        except TimeoutError:
            raise AssertionError(
                f"expected {connections} connections, {ended} of them ended, within {within:g} s; {_seen(self.visits)}"
            ) from None

    def _timeline(self) -> Timeline:
        return self._kit.run(_called(self._flaky.timeline))


class Front:
    """A TCP server to put in front of the test's server, for use from any thread.

    A new behaviour applies to later connections; `drain` and `break_all` end those that are open.

    Attributes:
        target: where clients connect.
    """

    def __init__(self, kit: Kit, flaky: fronts.FlakyFront) -> None:
        """Take a front that runs on the kit's loop."""
        self._kit = kit
        self._flaky = flaky
        self._relays: list[Relay] = []
        self.target = flaky.target

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The connections that were accepted, in order; their times are those of one monotonic clock."""
        found = self._kit.run(_called(lambda: list(self._flaky.visits)))
        return tuple(
            Visit(number=number, behaviour="front", accepted=each.at, ended=each.ended)
            for number, each in enumerate(found, 1)
        )

    @property
    def gaps(self) -> list[float]:
        """The times between the connections, in seconds."""
        return _gaps(self.visits)

    def forward(
        self,
        upstream: str,
        *,
        latency: float = 0.0,
        cut_after: int | None = None,
        streams: int | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Forward connections to the server at this `HOST:PORT`, which has no TLS.

        Args:
            upstream: the server.
            latency: how long to hold back everything that the server sends, in seconds.
            cut_after: after how many bytes from the server the connection is reset, perhaps within a message.
            streams: the most calls that a connection may have at once; by default, what the server says.
            tls: the certificate that clients see; to change it, call `forward` again. By default, no TLS.

        Raises:
            ValueError: `upstream` has another form.
        """
        host, _, port = upstream.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"upstream={upstream}: expected HOST:PORT")
        self._flaky.upstream = (host, int(port))
        self._relays.append(Relay(latency=latency, cut_after=cut_after, streams=streams, tls=tls))
        self._behave(self._relays[-1])

    def drain(self, grace: float = 0.0) -> None:
        """Send GOAWAY on every forwarded connection, as a restarting server does, and close it `grace` seconds later.

        Returns after that time. Running calls may finish in it; new connections are forwarded as before.
        """

        async def drain() -> None:
            await asyncio.gather(*(relay.drain(grace) for relay in self._relays))

        self._kit.run(drain(), grace + _PATIENCE)

    def refuse(self) -> None:
        """Refuse connections, as if nothing listened."""
        self._kit.run(self._flaky.refuse())

    def hang(self) -> None:
        """Accept connections and send nothing."""
        self._behave(fronts.silent)

    def hang_up(self) -> None:
        """Accept connections and close them."""
        self._behave(fronts.accept_close)

    def reset(self) -> None:
        """Accept connections and reset them."""
        self._behave(fronts.accept_reset)

    def hang_up_after_settings(self, seconds: float = 0.0) -> None:
        """Send SETTINGS and close connections, much like HAProxy that rejects content."""
        self._behave(fronts.settings_then_close(seconds))

    def break_all(self) -> None:
        """Reset every open connection."""
        self._kit.run(self._flaky.break_all())

    def _behave(self, behaviour: fronts.Behaviour) -> None:
        async def change() -> None:
            self._flaky.behaviour = behaviour
            await self._flaky.listen()

        self._kit.run(change())


def terms(
    initial: float = PROTOCOL.initial,
    multiplier: float = PROTOCOL.multiplier,
    cap: float = PROTOCOL.cap,
    jitter: float = PROTOCOL.jitter,
    tolerance: float = PROTOCOL.tolerance,
) -> Terms:
    """Return a client's backoff, in seconds; the defaults are the protocol's. `tolerance` allows for a slow machine."""
    return Terms(
        initial=initial,
        multiplier=multiplier,
        cap=cap,
        jitter=jitter,
        min_connect_timeout=PROTOCOL.min_connect_timeout,
        tolerance=tolerance,
    )


def assert_backs_off(visits: Sequence[Visit], expected: Terms = PROTOCOL) -> None:
    """Assert that these connections, all of which failed at once, are as far apart as the backoff says."""
    _require(len(visits) >= _TWO_GAPS, f"expected {_TWO_GAPS} connections or more; {_seen(visits)}")
    lines, wrong = [], False
    for n, gap in enumerate(_gaps(visits), 1):
        allowed = expected.band(n)
        missed = gap not in allowed
        wrong |= missed
        lines.append(f"gap {n}: {gap:.3f} s, allowed {allowed.low:.3f} to {allowed.high:.3f}{' <-' if missed else ''}")
    _require(not wrong, "the client does not back off as expected\n" + "\n".join(lines))


def assert_no_flood(visits: Sequence[Visit], expected: Terms = PROTOCOL) -> None:
    """Assert that at most one connection per INITIAL_BACKOFF, less its jitter, was made, plus one that may be early."""
    lasted = visits[-1].accepted - visits[0].accepted if visits else 0.0
    most = math.floor((lasted + expected.tolerance) / ((1 - expected.jitter) * expected.initial)) + 2
    _require(len(visits) <= most, f"the client floods: at most {most} connections are allowed; {_seen(visits)}")


def assert_reconnects_within(visits: Sequence[Visit], seconds: float, since: float = 0.0) -> None:
    """Assert that a connection followed within `seconds` after the time `since` on the server's clock."""
    waited = min((visit.accepted - since for visit in visits if visit.accepted >= since), default=math.inf)
    _require(math.isfinite(waited), f"the client did not reconnect; {_seen(visits)}")
    _require(waited <= seconds, f"the client took {waited:.3f} s to reconnect, more than {seconds:g} s")


def assert_no_call_lost(calls: Sequence[Request], made: int | None = None) -> None:
    """Assert that each request was answered and, if it is known how many calls were made, that all of them were."""
    lost = [f"{call.path} {call.call}".strip() + f": {call.outcome}" for call in calls if call.outcome != "ok"]
    _require(not lost, f"{len(lost)} of {len(calls)} requests were not answered: {', '.join(lost[:5])}")
    _require(made is None or len(calls) >= made, f"{made} calls were made, but only {len(calls)} reached the server")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)  # `assert` would do nothing with `python -O`


def _seen(visits: Sequence[Visit]) -> str:
    """Describe connections in one line."""
    if not visits:
        return "the server saw no connection"
    gaps = ", ".join(f"{gap:.3f}" for gap in _gaps(visits)[:8])
    lasted = visits[-1].accepted - visits[0].accepted
    return f"the server saw {len(visits)} connections in {lasted:.1f} s" + (f", {gaps} s apart" if gaps else "")


def _gaps(visits: Sequence[Visit]) -> list[float]:
    return [after.accepted - visit.accepted for visit, after in pairwise(visits)]


async def _called(work: Callable[[], Result]) -> Result:
    return work()
