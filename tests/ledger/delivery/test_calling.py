"""One attempt of an operation; test_delivery.py makes them on real channels."""

from __future__ import annotations

from grpc_backoff.ledger.delivery.calling import cut


def test_details_are_cut():
    """LG-1: the server's details are cut to at most 1 KiB of whole characters, without NUL characters."""
    assert cut("ä" * 600) == "ä" * 512
    assert cut("a\x00b") == "ab"
