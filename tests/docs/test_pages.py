"""The user pages: every Python block runs unchanged, in the page's order, against a real server."""

from __future__ import annotations

import asyncio
import logging
import re

import grpc.aio
import pytest

import grpc_backoff
from tests.docs.pages import ADDRESS, DOCS, blocks, run

PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted([DOCS / "index.md", *(DOCS / "howto").glob("*.md"), *(DOCS / "concepts").glob("*.md")])
]


@pytest.mark.parametrize("page", PAGES)
async def test_python_runs(page, port, monkeypatch, tmp_path):
    """CH-1: code that users copy runs; only addresses are replaced. Channels that a page leaves open are closed."""
    monkeypatch.setattr(grpc.aio, "insecure_channel", grpc.aio.insecure_channel)
    monkeypatch.chdir(tmp_path)
    for file in blocks(page, "toml"):
        (tmp_path / "backoff.toml").write_text(file)
    names = {"__name__": page}
    try:
        async with asyncio.timeout(60):
            for code in blocks(page):
                await run(code.replace(ADDRESS, f"localhost:{port}").replace("9464", "0"), page, names)
    finally:
        grpc_backoff.uninstall()
        logging.getLogger("grpc_backoff").setLevel(logging.NOTSET)
        if "metrics" in names:  # from howto/monitoring.md
            await asyncio.to_thread(names["server"].shutdown)
            names["server"].server_close()
        for value in names.values():
            if isinstance(value, grpc.aio.Channel):
                await value.close()


@pytest.mark.parametrize("page", PAGES)
def test_files_are_good(page, tmp_path):
    """BP-3: every settings file on a page is valid."""
    for text in blocks(page, "toml"):
        (tmp_path / "backoff.toml").write_text(text)
        grpc_backoff.read_config(tmp_path / "backoff.toml")


def test_pages_show_code():
    """Most how-to pages contain code, so the tests above have something to run."""
    assert len([page for page in PAGES if blocks(page)]) >= 7


def test_every_language_is_run():
    """A block that is neither Python nor TOML is plain text, or YAML or PromQL that other tests read."""
    kinds = {
        kind for page in PAGES for kind in re.findall(r"^ *```(\w+)", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    }

    assert kinds <= {"python", "toml", "text", "yaml", "promql"}
