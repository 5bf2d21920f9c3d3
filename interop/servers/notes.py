"""What a server did, and what our channel saw of it, in plain sentences with the figures of one trial."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from interop.servers.demands import recovery
from interop.servers.evidence import Evidence
from interop.servers.happenings import RELOADS, Happening
from interop.servers.traffic import Call

__all__ = ["figures", "notes"]


def notes(evidence: Evidence) -> list[str]:
    """Return the sentences."""
    said = {
        Happening.KILLED: _killed,
        Happening.DRAINED: _drained,
        Happening.AGED: _aged,
        Happening.FROZEN: _frozen,
        Happening.PINGED: _frozen,
        Happening.RELOADED: _reloaded,
        Happening.UPSTREAM_DOWN: _upstream_down,
    }[evidence.happening]
    return list(said(evidence))


def figures(evidence: Evidence | None) -> list[str]:
    """Return the cells of a table's line: calls, failed ones, the time of recovery, connections and attempts."""
    if evidence is None:
        return [""] * 5
    seconds = recovery(evidence)
    return [
        str(len(evidence.calls)),
        str(sum(not call.answered for call in evidence.calls)),
        "never" if seconds is None else f"{seconds:.2f} s",
        str(evidence.connections),
        str(len(evidence.starts)),
    ]


def _killed(evidence: Evidence) -> Iterable[str]:
    on_wire = [call for call in evidence.calls if call.lost]
    yield f"{_count(len(on_wire), 'call')} that ran when it was killed failed{_how(on_wire)}."
    yield _unsent(evidence)
    yield from _recovered(evidence)


def _drained(evidence: Evidence) -> Iterable[str]:
    yield f"It had ended {evidence.gone - evidence.struck:.2f} s after it was told."
    answered = len(evidence.survivors)
    yield f"{_count(answered, 'call')} that ran then {_was(answered)} answered{_lost(evidence)}."
    yield _unsent(evidence)
    yield from _recovered(evidence)


def _aged(evidence: Evidence) -> Iterable[str]:
    lives = [loss.lived for loss in evidence.losses]
    if lives:
        yield (
            f"{_count(len(lives), 'connection')} ended, at an age of {min(lives):.2f} to {max(lives):.2f} s"
            f"{_lost(evidence)}."
        )
    else:
        yield "No connection ended."


def _reloaded(evidence: Evidence) -> Iterable[str]:
    ended = [loss for loss in evidence.losses if loss.at >= evidence.struck]
    yield f"Of {RELOADS} reloads, {len(ended)} ended the connection{_lost(evidence)}."


def _frozen(evidence: Evidence) -> Iterable[str]:
    frozen = evidence.back - evidence.gone
    losses = [loss for loss in evidence.losses if loss.at < evidence.back]
    if losses:
        yield f"The connection was given up {losses[0].at - evidence.gone:.2f} s after the stop."
    else:
        yield f"The connection outlived the {frozen:.1f} s; keepalive did not end it."
    late = [call for call in evidence.calls if not call.answered]
    yield f"{_count(len(late), 'call')} failed{_how(late)}."
    yield from _recovered(evidence)


def _upstream_down(evidence: Evidence) -> Iterable[str]:
    running = [call for call in evidence.calls if call.began < evidence.gone and not call.answered]
    failed = [call for call in evidence.meanwhile if not call.answered]
    waited = [call for call in evidence.meanwhile if call.answered]
    yield f"{_count(len(running), 'call')} that ran when its server was killed failed{_how(running)}."
    if failed:
        took = statistics.median(call.ended.at - call.began for call in failed if call.ended)
        yield f"Without its server it refused {_count(len(failed), 'call')}{_how(failed)}, after {took:.3f} s each."
    yield f"{_count(len(waited), 'call')} of that time {_was(len(waited))} answered once the server was back."
    yield (
        f"The channel made {_count(evidence.connections, 'connection')}, and lost "
        f"{_count(len(evidence.losses), 'connection')}."
    )


def _recovered(evidence: Evidence) -> Iterable[str]:
    seconds = recovery(evidence)
    if seconds is not None:
        attempts = len(evidence.starts)
        yield (
            f"A call was answered {seconds:.2f} s after it was back; the channel made "
            f"{_count(evidence.connections, 'connection')} with {_count(attempts, 'attempt')} in all."
        )


def _unsent(evidence: Evidence) -> str:
    unsent = [call for call in evidence.calls if call.ended is not None and call.ended.unsent]
    return f"{_count(len(unsent), 'impatient call')} failed at once for want of a connection."


def _lost(evidence: Evidence) -> str:
    lost = [call for call in evidence.calls if call.lost]
    return f", and {_count(len(lost), 'call')} {_was(len(lost))} lost{_how(lost)}"


def _how(calls: Sequence[Call]) -> str:
    """Say how calls ended, most frequent first: the code, and the words that came with it."""
    words = Counter(f"{call.ended.code.name}, {_plain(call.ended.details)!r}" for call in calls if call.ended)
    return f" ({'; '.join(text for text, _ in words.most_common(2))})" if words else ""


def _plain(details: str) -> str:
    """Leave out what is another one each time: the target, and the attempt that is next."""
    return re.sub(r"; (attempt|next) [^;]*$", "", re.sub(r"(ipv4:)?127\.0\.0\.1:\d+", "the target", details))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
