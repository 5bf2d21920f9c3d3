"""The user pages: every Python block runs unchanged, in the page's order, against a real server."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re

import grpc.aio
import pytest

import grpc_backoff
from grpc_judge.runner.process import free_port
from tests.docs.pages import DOCS, blocks, read, run

NAMED = [DOCS / "index.md", DOCS / "telemetry.md"]
PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted([*NAMED, *(DOCS / "howto").glob("*.md"), *(DOCS / "concepts").glob("*.md")])
    if path.name != "chaos.md"  # which needs other packages: test_chaos.py
]


@pytest.mark.parametrize("page", PAGES)
async def test_python_runs(page, ports, pems, monkeypatch, tmp_path):
    """CH-1: code that users copy runs; only addresses are replaced. Channels that a page leaves open are closed.

    A page that starts servers of its own calls these, with the files that it writes.
    """
    if "add_secure_port" in read(page):
        ports = {address: free_port() for address in ports}
        for file in tmp_path.iterdir():
            file.unlink()
    monkeypatch.setattr(grpc.aio, "insecure_channel", grpc.aio.insecure_channel)
    for file in blocks(page, "toml"):
        (tmp_path / "backoff.toml").write_text(file)
    names, opened = {"__name__": page}, set()
    try:
        async with asyncio.timeout(60):
            for code in blocks(page):
                await run(at(code, ports).replace("9464", "0"), page, names)
                opened |= {value for value in names.values() if isinstance(value, grpc.aio.Channel | grpc.Channel)}
    finally:
        grpc_backoff.uninstall()
        logging.getLogger("grpc_backoff").setLevel(logging.NOTSET)
        if "metrics" in names:  # from telemetry.md
            await asyncio.to_thread(names["server"].shutdown)
            names["server"].server_close()
        if isinstance(names.get("server"), grpc.aio.Server):
            await names["server"].stop(None)
        for channel in opened:
            if inspect.isawaitable(closing := channel.close()):
                await closing


def at(code, ports):
    """Return a block with the tests' ports in place of the page's."""
    for address, port in ports.items():
        number = address.partition(":")[2]
        code = re.sub(rf"(localhost|127\.0\.0\.1):{number}\b", rf"\1:{port}", code)
    return code


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
    """A block that is neither Python nor TOML is plain text, or one that other tests read."""
    kinds = {
        kind for page in PAGES for kind in re.findall(r"^ *```(\w+)", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    }

    assert kinds <= {"python", "toml", "text", "yaml", "promql", "nginx", "haproxy"}
