"""Opens and closes threaded channels one after another: alternately after a call, during an attempt, and unused."""

from __future__ import annotations

import time
from dataclasses import dataclass

import grpc_backoff
from benchmarks.endurance.left import Open, settled
from tests.echo import EchoStub, Message

__all__ = ["Verdict", "open_and_close"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the run."""

    channels: int
    left: dict[str, int]
    seconds: float


def open_and_close(target: str, count: int) -> Verdict:
    """Open and close this many channels, after a first one that starts process-wide resources such as threads."""
    _use(target, 0)
    time.sleep(1.0)  # lets the conductor's thread end
    before, began = Open(), time.monotonic()
    for number in range(count):
        _use(target, number)
    took = time.monotonic() - began
    return Verdict(count, settled(before), round(took, 1))


def _use(target: str, number: int) -> None:
    with grpc_backoff.insecure_channel(target) as channel:
        match number % 4:
            case 0 | 1:
                EchoStub(channel).Unary(Message(text="a"), timeout=30)
            case 2:
                channel.subscribe(_nothing, try_to_connect=True)


def _nothing(_state: object) -> None:
    pass
