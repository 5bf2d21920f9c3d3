"""The recorded demo: what is drawn, and the picture in the repository."""

from __future__ import annotations

import json
import re

from examples.recording import PICTURE, thin

TEXT = PICTURE.read_text("utf-8")


def test_frames():
    """What was shown within a quarter of a second is one frame; the last one stays; nothing else is kept."""
    recorded = [
        {"version": 2, "width": 120, "height": 30, "timestamp": 1, "env": {"SHELL": "/bin/sh"}},
        [0.1, "o", "a"],
        [0.2, "i", "typed"],
        [0.24, "o", "b"],
        [0.6, "o", "c"],
    ]
    thinned = thin("".join(json.dumps(line) + "\n" for line in recorded))

    assert [json.loads(line) for line in thinned.splitlines()] == [
        {"version": 2, "width": 120, "height": 30},
        [0.0, "o", "ab"],
        [0.5, "o", "c"],
        [8.5, "o", "\r\n"],
    ]


def test_the_picture_is_small_and_needs_nothing():
    """It is loaded with the README: at most 300 kB, no script, no address of a machine or of another host."""
    addresses = set(re.findall(r"https?://[^\"\s]+", TEXT))

    assert len(TEXT.encode()) <= 300_000
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "<script" not in TEXT
    assert re.findall(r"/(?:home|root|tmp|Users|work)/", TEXT) == []


def test_the_picture_shows_every_check():
    """What was recorded is a demo that kept its promises."""
    words = set(re.findall(r"<text[^>]*>([^<]+)</text>", TEXT))

    assert {"grpc_backoff.aio", "grpc.aio", "ok", "READY"} <= words
    assert "FAILED" not in TEXT
