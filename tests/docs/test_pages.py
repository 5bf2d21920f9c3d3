"""The pages for users: every block of Python runs as it stands, in the order of its page, before a real server."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import logging
import re

import grpc
import grpc.aio
import pytest

import grpc_backoff
from tests.docs.pages import ADDRESS, DOCS, blocks

PAGES = [
    path.relative_to(DOCS).as_posix()
    for path in sorted([DOCS / "index.md", *(DOCS / "howto").glob("*.md"), *(DOCS / "concepts").glob("*.md")])
]


@pytest.fixture
async def port(shop):
    """Run the server of `docs/get-started.md`, whose own name for its port is another."""
    server = grpc.aio.server()
    importlib.import_module("shop_pb2_grpc").add_OrdersServicer_to_server(
        importlib.import_module("server").Orders(), server
    )
    bound = server.add_insecure_port("localhost:0")
    await server.start()
    yield bound
    await server.stop(None)


async def run(code, page, names):
    """Run a block, `await` outside of functions included, and then the tests that it defines."""
    before = set(names)
    done = eval(compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(done):
        await done
    for name in [name for name in names if name not in before and name.startswith("test_")]:
        await names[name]()


@pytest.mark.parametrize("page", PAGES)
async def test_python_runs(page, port, monkeypatch, tmp_path):
    """CH-1: what a user copies runs; only addresses are others. Channels that a page leaves open are closed here."""
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
        if "metrics" in names:  # howto/monitoring.md
            await asyncio.to_thread(names["server"].shutdown)
            names["server"].server_close()
        for value in names.values():
            if isinstance(value, grpc.aio.Channel):
                await value.close()


@pytest.mark.parametrize("page", PAGES)
def test_files_are_good(page, tmp_path):
    """BP-3: each file of settings on a page is taken whole."""
    for text in blocks(page, "toml"):
        (tmp_path / "backoff.toml").write_text(text)
        grpc_backoff.read_config(tmp_path / "backoff.toml")


def test_pages_show_code():
    """The tests above have something to run: most how-to pages have code."""
    assert len([page for page in PAGES if blocks(page)]) >= 7


def test_every_language_is_run():
    """A block of any other kind is an output, a picture or a file that a test of its own reads."""
    kinds = {
        kind for page in PAGES for kind in re.findall(r"^ *```(\w+)", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    }

    assert kinds <= {"python", "toml", "text", "yaml", "promql"}
