"""Decides which trials run concurrently, so that no client delays another.

Trials run in waves. All members of a wave are loaded first and then start. The next wave starts when they have ended.
1. Real time, all in one wave, because these processes sleep most of the time. The longest take the official 540 s
   and continue during the following waves; by then their attempts are minutes apart.
2. Floods: clients without any backoff against servers that fail at once. A flood is not timed precisely, and ends
   after three hundred connections.
3. Servers that hang up after SETTINGS, one at a time, because nearly every client floods them.
4. The long series in scaled time. These processes sleep most of the time, so there may be many of them.
5. Trials that are timed precisely, a few at a time: compressed time, where a twentieth of a second matters, and
   attempts that must start at once. Trials whose calls are answered come first, because they keep the servers busy.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grpc_judge.conformance import Scenario
from grpc_judge.matrix.scenarios import Pace
from grpc_judge.matrix.trial import Trial

_CORES = os.cpu_count() or 1

AT_ONCE = 4 * _CORES
"""How many processes run concurrently if they are timed precisely."""

_APART = 1.0 / _CORES
"""The interval between the starts of processes, in seconds. Each start keeps a core busy, for example with a TLS
handshake."""
_QUIET_APART = 0.05
"""The same interval for the reference client, whose start takes little CPU time."""

_SERVING = 6 * _CORES
"""How many processes run concurrently if their calls are answered. All of their servers run in our own process."""
_SERVED = {
    Scenario.SLOW_SETTINGS,
    Scenario.HERD,
    Scenario.OUTAGE,
    Scenario.RESTART,
    Scenario.LIMITED,
}
"""The scenarios in which calls are answered most of the time."""

_MINUTE = 60.0
"""Trials in scaled time that take longer than this, in seconds, sleep most of the time."""
_LONG = 300.0
"""A trial that takes longer than this, in seconds, and sleeps most of the time does not delay the next wave."""
_HOLDS_UP = 240.0
"""How long a wave of only such long trials delays the next, in seconds. Attempts are far apart by then."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Trials that run concurrently.

    Attributes:
        trials: the trials, in the order in which they are loaded.
        loud: whether starting a trial takes much CPU time.
    """

    trials: Sequence[Trial]
    loud: bool = True

    @property
    def apart(self) -> float:
        """The interval between starts, in seconds. It keeps the start of one trial from delaying the others."""
        if _processes(self.trials) <= AT_ONCE:
            return 0.0
        return _APART if self.loud else _QUIET_APART

    @property
    def seconds(self) -> float:
        """How long the wave takes after all trials are loaded, in seconds."""
        return max(trial.seconds for trial in self.trials)

    @property
    def holding(self) -> Sequence[int]:
        """The indices of the trials that the next wave waits for."""
        return [place for place, trial in enumerate(self.trials) if not _sleeps_long(trial)] or range(len(self.trials))

    @property
    def limit(self) -> float | None:
        """The longest time that the next wave waits for these trials, in seconds; None if it waits until they end."""
        return _HOLDS_UP if all(_sleeps_long(trial) for trial in self.trials) else None


def _sleeps_long(trial: Trial) -> bool:
    return trial.seconds > _LONG and not _floods(trial)


def _floods(trial: Trial) -> bool:
    return trial.peer.loud and trial.staging.floods


class _Kind(enum.Enum):
    """The kind of a trial, which determines its wave. Waves run in this order."""

    REAL = enum.auto()
    FLOOD = enum.auto()
    FLAPPING = enum.auto()
    SCALED = enum.auto()
    SERVED = enum.auto()
    CLOSE = enum.auto()


_AT_ONCE_OF = {
    _Kind.REAL: 40 * _CORES,
    _Kind.FLOOD: 2 * _CORES,
    _Kind.FLAPPING: 1,
    _Kind.SCALED: 16 * _CORES,
    _Kind.SERVED: AT_ONCE,
    _Kind.CLOSE: AT_ONCE,
}
"""How many processes of each kind run concurrently. Those in real time sleep, so only memory limits them."""


def waves(trials: Iterable[Trial], at_once: int = AT_ONCE, *, loud: bool = True) -> Iterator[Wave]:
    """Yield the waves, each with up to `at_once` processes in compressed time.

    If clients are not `loud`, up to `at_once` processes also run concurrently against servers that hang up after
    SETTINGS, and in the long series.
    """
    ordered = sorted(trials, key=lambda trial: -trial.seconds)
    most = _AT_ONCE_OF | {_Kind.CLOSE: at_once, _Kind.SERVED: min(at_once, _SERVING)}
    if not loud:
        most |= {_Kind.FLAPPING: at_once, _Kind.SCALED: max(at_once, most[_Kind.SCALED])}
    for kind, processes in most.items():
        yield from (Wave(each, loud) for each in _filled((one for one in ordered if _kind(one) is kind), processes))


def _kind(trial: Trial) -> _Kind:
    if trial.staging.scenario is Scenario.FLAPPING:
        return _Kind.FLAPPING
    if _floods(trial):
        return _Kind.FLOOD
    if trial.pace is Pace.SCALED and trial.seconds > _MINUTE:
        return _Kind.SCALED
    if not trial.pace.told and trial.staging.compressible:
        return _Kind.REAL
    return _Kind.SERVED if trial.staging.scenario in _SERVED else _Kind.CLOSE


def _filled(trials: Iterable[Trial], at_once: int) -> Iterator[Sequence[Trial]]:
    """Yield the trials of each wave, which has up to `at_once` processes or a single trial that needs more."""
    wave: list[Trial] = []
    for trial in trials:
        if wave and _processes([*wave, trial]) > at_once:
            yield wave
            wave = []
        wave.append(trial)
    if wave:
        yield wave


def _processes(trials: Iterable[Trial]) -> int:
    return sum(trial.clients for trial in trials)
