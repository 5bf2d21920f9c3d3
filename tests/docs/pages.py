"""The code blocks of the pages, most of which call the service of `docs/get-started.md`."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS, SECURE, MUTUAL = "localhost:50051", "localhost:50443", "localhost:50444"
"""The addresses on the pages, which tests replace with their own: without TLS, with it, and with mutual TLS."""
IN_THREADS = ("grpc_backoff.insecure_channel(", "grpc_backoff.secure_channel(")
"""What a block contains that runs in a thread, because it would block the event loop of its own server."""


def read(page):
    return (DOCS / page).read_text("utf-8")


def blocks(page, language="python"):
    """Return a page's blocks in one language, in order, without the indentation of a list or a tab."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", read(page), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, its, text in fences if its == language]


def block(page, saying, language="python"):
    """Return the one block of a page that contains this text."""
    (found,) = [each for each in blocks(page, language) if saying in each]
    return found


async def run(code, page, names):
    """Run a block, which may use `await` outside functions, and then the tests that it defines."""
    before = set(names)
    compiled = compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if any(constructor in code for constructor in IN_THREADS):
        await asyncio.to_thread(exec, compiled, names)
        return
    done = eval(compiled, names)
    if inspect.isawaitable(done):
        await done
    for name in [name for name in names if name not in before and name.startswith("test_")]:
        await names[name]()
