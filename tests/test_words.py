"""The word check that `make check` runs: it finds each phrase and its line, and finds none in the project's text."""

from __future__ import annotations

import pytest

from tests.words import BETTER, ROOT, findings, pages

BAD = [
    ('"""Who waits is cancelled."""', '"""Who waits'),
    ("# It is closed. Who waits is cancelled.", "Who waits"),
    ("A hint for who retries.", "for who"),
    ("vouches for the certificate", "vouches for"),
    ("- **Which say holds.**", "Which say"),
    ("The server's word beats the schedule.", "The server's word"),
    ("# The hook hears\n    # of it.", "hears of"),
    ('"""Take note of it."""', "Take note of it"),
    ("patient calls", "patient"),
    ("after the first try", "first try"),
    ("The schedule begins anew.", "begins anew"),
    ("It fails for want of a connection.", "for want of"),
    ("dialled in vain", "in vain"),
    ("Somebody else dials.", "Somebody"),
    ("It is no TLS port.", "is no TLS"),
    ("the threaded face", "threaded face"),
    ("It dials unasked.", "unasked"),
    ("in spite of its name", "in spite of"),
    ("unused for so long", "for so long"),
    ("The call lets go of it.", "lets go of"),
    ("The channel is told of a loss.", "is told of"),
    ('"""Refuse what is wrong."""', '"""Refuse what'),
]


@pytest.mark.parametrize(("text", "phrase"), BAD)
def test_it_finds(text, phrase):
    """Each phrase is found at its line, even across a line break."""
    found = findings(f"one\ntwo\n{text}\n")

    assert [(line, at) for line, at, _ in found] == [(3, phrase)]


def test_every_phrase_is_tried():
    """Every phrase in the list has an example above."""
    assert {better for text, _ in BAD for _, _, better in findings(text)} == set(BETTER.values())


def test_questions_are_no_findings():
    """A question that begins with "who" is not reported."""
    assert findings("Who waits for whom? Who said it is the next question: who asks for it?") == []


def test_nothing_is_found():
    """The project's text has none of the phrases, except in generated files and the changelog."""
    assert len(pages()) > 200
    assert {path.name: findings(path.read_text("utf-8")) for path in pages() if findings(path.read_text("utf-8"))} == {}
    assert ROOT / "README.md" in pages()
