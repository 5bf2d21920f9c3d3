"""What was observed of our channel while something happened to its server, as values that `demands.py` judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc

from grpc_backoff import AttemptStarted, Connected, ConnectionEvent, Disconnected
from grpc_judge.conformance import Terms
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.server import Server
from grpc_judge.servers.traffic import Call


@dataclass(frozen=True, slots=True)
class Outage:
    """A period without a connection.

    It starts with the loss of a connection or with the first call, and ends at READY or when the observation ends.
    """

    began: float
    ended: float
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was observed in one case. Times are in seconds on the event loop's clock.

    Attributes:
        server: the server.
        happening: what happened to it.
        terms: the backoff that the channel was configured with.
        calls: all calls.
        events: all events of the channel.
        began: when the calls began.
        struck: when the happening began.
        gone: when the server had ended or was frozen.
        back: when it listened again or resumed.
        over: when the last call had ended.
        state: the channel's state just after one of the last calls was answered.
        versions: the versions of the software that the server and its upstream use.
    """

    server: Server
    happening: Happening
    terms: Terms
    calls: Sequence[Call]
    events: Sequence[ConnectionEvent]
    began: float
    struck: float
    gone: float
    back: float
    over: float
    state: grpc.ChannelConnectivity
    versions: Mapping[str, str]

    @property
    def connections(self) -> int:
        """How many connections were made."""
        return sum(isinstance(event, Connected) for event in self.events)

    @property
    def starts(self) -> Sequence[float]:
        """When each attempt started."""
        return [event.at for event in self.events if isinstance(event, AttemptStarted)]

    @property
    def losses(self) -> Sequence[Disconnected]:
        """The losses of connections before the channel was closed."""
        return [event for event in self.events if isinstance(event, Disconnected)]

    def outages(self) -> Iterator[Outage]:
        """Yield the periods without a connection."""
        began, attempts = self.began, 0
        for event in self.events:
            if isinstance(event, AttemptStarted):
                attempts += 1
            elif isinstance(event, Connected):
                yield Outage(began, event.at, attempts)
                attempts = 0
            elif isinstance(event, Disconnected):
                began = event.at
        if attempts:
            yield Outage(began, self.over, attempts)

    @property
    def survivors(self) -> Sequence[Call]:
        """The calls that were in progress when the happening began and were answered afterwards."""
        running = (call for call in self.calls if call.began < self.struck and call.answered)
        return [call for call in running if call.ended is not None and call.ended.at > self.struck]

    @property
    def meanwhile(self) -> Sequence[Call]:
        """The calls that were made while the server was gone."""
        return [call for call in self.calls if self.gone <= call.began < self.back]

    @property
    def waiting(self) -> Sequence[Call]:
        """The wait-for-ready calls that were made while there was no connection and the server was not back yet.

        On a busy machine, the channel hears of the loss late. So calls that outlast the server's absence count as well.
        """
        lost = next((loss.at for loss in self.losses if loss.at >= self.struck), self.back)
        made = (call for call in self.calls if call.wait_for_ready and self.struck <= call.began < self.back)
        return [call for call in made if call.began >= lost or call.ended is None or call.ended.at >= self.back]
