"""The code blocks of the pages, most of which call the service of `docs/get-started.md`."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "localhost:50051"
"""The server's address on the pages, which tests replace with their own."""


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
    done = eval(compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(done):
        await done
    for name in [name for name in names if name not in before and name.startswith("test_")]:
        await names[name]()
