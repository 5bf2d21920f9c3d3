"""Draws the timeline of attempts to connect in docs/concepts/protocol.md: `python -m examples.timeline`.

The channel is real. Its attempts follow a script on a fake clock, so the picture is always the same: two attempts fail,
one hangs until its limit, and one succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from grpc_backoff import AttemptFailed, AttemptStarted, Connected
from grpc_backoff.testing import Fails, FakeClock, Hangs, ScriptedConnector, Succeeds, scripted_channel

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "timeline.svg"

_SCALE = 30  # pixels for each second
_LEFT, _TOP, _WIDTH, _HEIGHT = 50, 78, 860, 270
_BAR, _LINE = 22, 26
_FAILED, _CONNECTED, _WAITS = "#b3261e", "#1b7f3b", "#5f6368"


async def record() -> list[AttemptStarted | AttemptFailed | Connected]:
    """Return the events of the channel's attempts, with times relative to the first start."""
    events: list[AttemptStarted | AttemptFailed | Connected] = []

    def listen(event: object) -> None:
        if isinstance(event, AttemptStarted | AttemptFailed | Connected):
            events.append(event)

    clock = FakeClock(start=0.0)
    connector = ScriptedConnector(clock, [Fails(after=0.4), Fails(after=0.4), Hangs(), Succeeds(after=0.5)])
    async with scripted_channel(connector, "127.0.0.1:1", listeners=[listen]) as channel:
        channel.get_state(try_to_connect=True)
        await clock.advance(30)
    return events


def draw(events: Sequence[AttemptStarted | AttemptFailed | Connected]) -> str:
    """Return the picture."""
    starts = [event for event in events if isinstance(event, AttemptStarted)]
    ends = [event for event in events if not isinstance(event, AttemptStarted)]
    last = ends[-1].at
    parts = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 24, "the starts of attempts are spaced, not the pauses between them", weight="bold"),
    ]
    for start, end in zip(starts, ends, strict=True):
        colour = _CONNECTED if isinstance(end, Connected) else _FAILED
        x, wide = _x(start.at), max(2.0, (end.at - start.at) * _SCALE)
        parts.append(f'<rect x="{x:.1f}" y="{_TOP}" width="{wide:.1f}" height="{_BAR}" fill="{colour}"/>')
        parts.append(_text(x + wide / 2, _TOP - 6, str(start.attempt), anchor="middle"))
    hung = max(zip(starts, ends, strict=True), key=lambda pair: pair[1].at - pair[0].at)[0]
    parts.append(
        _text(_x(hung.at) + 8, _TOP + 15, f"no SETTINGS: given up at its limit, {hung.limit:.3g} s", fill="#ffffff")
    )
    ready = _x(last)
    parts.append(f'<rect x="{ready:.1f}" y="{_TOP}" width="{_WIDTH - ready:.1f}" height="{_BAR}" fill="#cfe8d5"/>')
    parts.append(_text(ready + 6, _TOP + 15, "READY"))
    for number, (start, following) in enumerate(pairwise(starts)):
        parts += _gap(start, following, _TOP + _BAR + 16 + number * _LINE)
    parts += _axis(int(last) + 2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="13">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _gap(start: AttemptStarted, following: AttemptStarted, y: float) -> list[str]:
    seconds = following.at - start.at
    why = {1: "INITIAL_BACKOFF, without jitter", 2: "times 1.6, up to 20 % more or less"}.get(
        start.attempt, "the gap had passed, so the next starts at once"
    )
    left, right = _x(start.at), _x(following.at)
    line = f'<path d="M{left:.1f} {y - 5}v10M{left:.1f} {y}H{right:.1f}m0 -5v10" stroke="{_WAITS}" fill="none"/>'
    label = f"{start.attempt} to {following.attempt}: {seconds:.2f} s, {why}"
    if right > _WIDTH / 2:
        return [line, _text(right - 8, y + 17, label, anchor="end")]
    return [line, _text(right + 8, y + 4, label)]


def _axis(end: int) -> list[str]:
    y = _HEIGHT - 32
    ticks = "".join(f"M{_x(second):.1f} {y}v5" for second in range(0, end + 1, 5))
    numbers = [_text(_x(second), y + 20, f"{second} s", anchor="middle") for second in range(0, end + 1, 5)]
    return [f'<path d="M{_x(0):.1f} {y}H{_x(end):.1f}{ticks}" stroke="#202124" fill="none"/>', *numbers]


def _x(second: float) -> float:
    return _LEFT + second * _SCALE


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", fill: str = "#202124", weight: str = "normal"
) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{text}</text>'


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(asyncio.run(record())), "utf-8")


if __name__ == "__main__":
    main()
