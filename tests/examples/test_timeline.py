"""The committed picture of an attempt's timeline is what its script draws."""

from __future__ import annotations

from examples.timeline import PICTURE, draw, record


async def test_the_picture_is_the_machines():
    """CB-2, CB-3, CB-4: the picture shows when attempts start; `python -m examples.timeline` redraws it."""
    assert draw(await record()) == PICTURE.read_text("utf-8")
