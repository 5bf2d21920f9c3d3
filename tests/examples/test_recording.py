"""The recorded demo: its frames, and the picture in the repository."""

from __future__ import annotations

import json
import re

from examples.recording import PICTURE, still, thin

TEXT = PICTURE.read_text("utf-8")


def test_frames():
    """Output within a quarter of a second is one frame, the last frame is held, and all other data is dropped."""
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
        [4.5, "o", "\r\n"],
    ]


def test_a_long_recording_is_shortened():
    """A recording of forty seconds plays for eight, and its last frame stays for four."""
    recorded = [{"version": 2, "width": 80, "height": 30}, [20.0, "o", "a"], [40.0, "o", "b"]]
    _, *events = [json.loads(line) for line in thin("".join(json.dumps(line) + "\n" for line in recorded)).splitlines()]

    assert [moment for moment, *_ in events] == [4.0, 8.0, 12.0]


def test_the_picture_stands_still_where_that_is_preferred():
    """Where reduced motion is preferred, the picture shows the last frame of its animation."""
    drawn = "<style>@keyframes n{0%{transform:translateX(-8px)}to{transform:translateX(-16px)}}.a{fill:#000}</style>"
    rule = "@media (prefers-reduced-motion: reduce){g[style*=animation]{animation:none!important;transform:"

    assert still(drawn) == drawn.replace("<style>", f"<style>{rule}translateX(-16px)}}}}")
    assert rule in TEXT
    assert TEXT.count("animation-duration:12s") == 1


def test_the_picture_is_small_and_needs_nothing():
    """The README loads the picture, which has at most 300 kB, no script, no local paths and no external address."""
    addresses = set(re.findall(r"https?://[^\"\s]+", TEXT))

    assert len(TEXT.encode()) <= 300_000
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "<script" not in TEXT
    assert re.findall(r"/(?:home|root|tmp|Users|work)/", TEXT) == []


def test_the_picture_shows_every_check():
    """The recorded demo passed its checks."""
    words = set(re.findall(r"<text[^>]*>([^<]+)</text>", TEXT))

    assert {"grpc_backoff.aio", "grpc.aio", "ok", "READY"} <= words
    assert "FAILED" not in TEXT
