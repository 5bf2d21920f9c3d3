"""Decides which trials run side by side, so that no client delays another.

Trials run in waves. All members of a wave load first and then start; the next wave starts when they have ended.
1. Real time, all in one wave: these processes sleep. The longest, which take the official 540 s, continue beside the
   waves that follow; by then their attempts are minutes apart.
2. Floods: clients without any backoff, against servers that fail at once. A flood is not timed closely, and ends after
   three hundred connections.
3. Servers that hang up after SETTINGS, one at a time: nearly every client floods them.
4. The long series in scaled time: these sleep most of the time, so there may be many.
5. Trials that are timed closely, a few at a time: compressed time, where a twentieth of a second counts, and attempts
   that have to start at once.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from interop.conformance import Scenario
from interop.matrix.scenarios import Pace
from interop.matrix.trial import Trial

__all__ = ["AT_ONCE", "Wave", "waves"]

_CORES = os.cpu_count() or 1

AT_ONCE = 4 * _CORES
"""How many processes run side by side where they are timed closely."""

_APART = 1.0 / _CORES
"""How far apart processes start, in seconds: each keeps a core busy that long, for example with a TLS handshake."""

_MINUTE = 60.0
"""Trials in scaled time that take longer than this, in seconds, sleep through most of it."""
_LONG = 300.0
"""A trial that sleeps through more than this, in seconds, does not hold up the next wave."""
_HOLDS_UP = 240.0
"""How long a wave of nothing but such trials holds up the next, loading included; then attempts are far apart."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Trials that run side by side.

    Attributes:
        trials: the trials, in the order in which they load.
    """

    trials: Sequence[Trial]

    @property
    def apart(self) -> float:
        """The time between their starts, in seconds, so that starting one does not delay the others."""
        return _APART if _processes(self.trials) > AT_ONCE else 0.0

    @property
    def seconds(self) -> float:
        """How long the wave takes once all are loaded, in seconds."""
        return max(trial.seconds for trial in self.trials)

    @property
    def holding(self) -> Sequence[int]:
        """The indices of the trials that hold up the next wave."""
        return [place for place, trial in enumerate(self.trials) if not _sleeps_long(trial)] or range(len(self.trials))

    @property
    def limit(self) -> float | None:
        """How long they hold it up at most, in seconds; None for until they end."""
        return _HOLDS_UP if all(_sleeps_long(trial) for trial in self.trials) else None


def _sleeps_long(trial: Trial) -> bool:
    return trial.seconds > _LONG and not _floods(trial)


def _floods(trial: Trial) -> bool:
    return trial.peer.loud and trial.staging.floods


class _Kind(enum.Enum):
    """The kind of a trial, which determines its wave; in the order in which they run."""

    REAL = enum.auto()
    FLOOD = enum.auto()
    FLAPPING = enum.auto()
    SCALED = enum.auto()
    CLOSE = enum.auto()


_AT_ONCE_OF = {
    _Kind.REAL: 40 * _CORES,
    _Kind.FLOOD: 2 * _CORES,
    _Kind.FLAPPING: 1,
    _Kind.SCALED: 16 * _CORES,
    _Kind.CLOSE: AT_ONCE,
}
"""How many processes of a kind run side by side. Those in real time sleep, and are limited only by memory."""


def waves(trials: Iterable[Trial], at_once: int = AT_ONCE, *, loud: bool = True) -> Iterator[Wave]:
    """Yield the waves, with up to `at_once` processes in compressed time in one wave.

    Unless clients are `loud`, up to `at_once` also run side by side against servers that hang up after SETTINGS.
    """
    ordered = sorted(trials, key=lambda trial: -trial.seconds)
    several = {_Kind.CLOSE: at_once} if loud else {_Kind.CLOSE: at_once, _Kind.FLAPPING: at_once}
    for kind, most in (_AT_ONCE_OF | several).items():
        yield from _filled((trial for trial in ordered if _kind(trial) is kind), most)


def _kind(trial: Trial) -> _Kind:
    if trial.staging.scenario is Scenario.FLAPPING:
        return _Kind.FLAPPING
    if _floods(trial):
        return _Kind.FLOOD
    if trial.pace is Pace.SCALED and trial.seconds > _MINUTE:
        return _Kind.SCALED
    return _Kind.CLOSE if trial.pace.told or not trial.staging.compressible else _Kind.REAL


def _filled(trials: Iterable[Trial], at_once: int) -> Iterator[Wave]:
    """Yield waves of up to `at_once` processes, or of a single trial that has more."""
    wave: list[Trial] = []
    for trial in trials:
        if wave and _processes([*wave, trial]) > at_once:
            yield Wave(wave)
            wave = []
        wave.append(trial)
    if wave:
        yield Wave(wave)


def _processes(trials: Iterable[Trial]) -> int:
    return sum(trial.clients for trial in trials)
