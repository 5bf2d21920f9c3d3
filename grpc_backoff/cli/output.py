"""Opens the view that fits standard output."""

from __future__ import annotations

import sys

from grpc_backoff.cli.view import JsonView, View


def open_view(*, as_json: bool) -> View:
    """Return the view for standard output: JSON on request, live on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty():
        from grpc_backoff.cli.live import LiveView  # noqa: PLC0415 - rich takes a while to import

        return LiveView()
    return View()
