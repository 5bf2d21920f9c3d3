"""Describes one case in sentences and figures: what the server did, and what our channel saw of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from grpc_judge.servers.demands import recovery
from grpc_judge.servers.happenings import RELOADS, Happening
from grpc_judge.servers.observation import Observation
from grpc_judge.servers.traffic import outcomes

__all__ = ["figures", "notes"]


def notes(observation: Observation) -> list[str]:
    """Return the sentences about one case."""
    said = {
        Happening.KILLED: _killed,
        Happening.DRAINED: _drained,
        Happening.AGED: _aged,
        Happening.FROZEN: _frozen,
        Happening.PINGED: _frozen,
        Happening.RELOADED: _reloaded,
        Happening.UPSTREAM_DOWN: _upstream_down,
    }[observation.happening]
    return list(said(observation))


def figures(observation: Observation | None) -> list[str]:
    """Return the cells of a table row: calls, failed calls, time of recovery, connections and attempts."""
    if observation is None:
        return [""] * 5
    seconds = recovery(observation)
    return [
        str(len(observation.calls)),
        str(sum(not call.answered for call in observation.calls)),
        "never" if seconds is None else f"{seconds:.2f} s",
        str(observation.connections),
        str(len(observation.starts)),
    ]


def _killed(observation: Observation) -> Iterable[str]:
    on_wire = [call for call in observation.calls if call.lost]
    yield f"When the server was killed, {_count(len(on_wire), 'running call')} failed{outcomes(on_wire)}."
    yield _unsent(observation)


def _drained(observation: Observation) -> Iterable[str]:
    yield f"The server ended {observation.gone - observation.struck:.2f} s after SIGTERM."
    answered = len(observation.survivors)
    yield f"{_count(answered, 'running call')} {_was(answered)} answered after SIGTERM{_lost(observation)}."
    yield _unsent(observation)


def _aged(observation: Observation) -> Iterable[str]:
    lives = [loss.lived for loss in observation.losses]
    if lives:
        yield (
            f"{_count(len(lives), 'connection')} ended at an age of {min(lives):.2f} to {max(lives):.2f} s"
            f"{_lost(observation)}."
        )
    else:
        yield "No connection ended."


def _reloaded(observation: Observation) -> Iterable[str]:
    ended = [loss for loss in observation.losses if loss.at >= observation.struck]
    yield f"Of {RELOADS} reloads, {len(ended)} ended the connection{_lost(observation)}."


def _frozen(observation: Observation) -> Iterable[str]:
    frozen = observation.back - observation.gone
    losses = [loss for loss in observation.losses if loss.at < observation.back]
    if losses:
        yield f"The connection was abandoned {losses[0].at - observation.gone:.2f} s after the server was frozen."
    else:
        yield f"The connection survived the {frozen:.1f} s for which the server was frozen: keepalive did not end it."
    late = [call for call in observation.calls if not call.answered]
    yield f"{_count(len(late), 'call')} failed{outcomes(late)}."


def _upstream_down(observation: Observation) -> Iterable[str]:
    running = [call for call in observation.calls if call.began < observation.gone and not call.answered]
    failed = [call for call in observation.meanwhile if not call.answered]
    waited = [call for call in observation.meanwhile if call.answered]
    lost = f"{_count(len(running), 'running call')} failed{outcomes(running)}"
    yield f"When the server behind the proxy was killed, {lost}."
    if failed:
        took = statistics.median(call.ended.at - call.began for call in failed if call.ended)
        rejected = f"{_count(len(failed), 'call')}{outcomes(failed)}"
        yield f"While that server was gone, the proxy rejected {rejected}; the median rejection took {took:.3f} s."
    yield f"{_count(len(waited), 'call')} made in that time {_was(len(waited))} answered once the server was back."
    yield (
        f"The channel made {_count(observation.connections, 'connection')} and lost "
        f"{_count(len(observation.losses), 'connection')}."
    )


def _unsent(observation: Observation) -> str:
    unsent = [call for call in observation.calls if call.ended is not None and call.ended.unsent]
    return f"{_count(len(unsent), 'fail-fast call')} failed at once for lack of a connection."


def _lost(observation: Observation) -> str:
    lost = [call for call in observation.calls if call.lost]
    return f", and {_count(len(lost), 'call')} {_was(len(lost))} lost{outcomes(lost)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
