"""The README's code is run, and its options table is the code's."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import pytest

from grpc_backoff import aio
from grpc_backoff.config.options import OPTION_KEYS
from tests.echo import EchoStub, Message, serving

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
HOME = (Path(__file__).parents[1] / "docs" / "index.md").read_text("utf-8")
OPTIONS = (Path(__file__).parents[1] / "docs" / "reference" / "options.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block(saying):
    """Return the one block of code that has these words, wherever it stands."""
    (found,) = [block for block in BLOCKS if saying in block]
    return found


async def test_the_ten_lines(capsys):
    """CH-1: what a user copies runs as it stands; only the address is another."""
    async with serving() as port:
        code = (
            block("async def main()")
            .replace("localhost:50051", f"127.0.0.1:{port}")
            .replace("asyncio.run(main())\n", "")
        )
        assert "EchoStub(channel)" in code
        names = {"EchoStub": EchoStub, "Message": Message}
        exec(compile(code, "README.md", "exec"), names)
        await asyncio.wait_for(names["main"](), 30)
    said = capsys.readouterr().out
    assert said.startswith("hello ConnectionStatus(")
    assert "State.READY" in said


async def test_retry_calls():
    """RT-1: the channel and the call that are retried run as they are shown."""
    async with serving() as port:
        code = block("aio.retrying(").replace("localhost:50051", f"127.0.0.1:{port}")
        channel, call = code.splitlines()
        names = {"aio": aio, "request": Message(text="hello")}
        exec(channel, names)
        async with names["channel"]:
            names["stub"] = EchoStub(names["channel"])
            await asyncio.wait_for(eval(compile(call, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names), 30)
    assert names["reply"].text == "hello"


async def test_see_and_steer(capsys):
    """CH-11, CB-9: the calls beside grpc's own exist as they are shown."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        exec(compile(block("channel.add_listener("), "README.md", "exec"), {"channel": channel})
        await asyncio.wait_for(channel.channel_ready(), 30)
    assert "Connected(" in capsys.readouterr().out


def test_every_block_is_run():
    """CH-1: whatever the README shows in Python, a test here runs."""
    run = ["async def main()", "channel.add_listener(", "aio.retrying("]
    assert [block(saying) for saying in run] == BLOCKS


@pytest.mark.parametrize(
    "page", [README, OPTIONS.partition("## Connecting")[2].partition("\n## ")[0]], ids=["README", "options"]
)
def test_the_options_table_is_complete(page):
    """CH-9: every option that means something to this library is in the table, and no other."""
    listed = re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE)
    unlisted = {"grpc.testing.fixed_reconnect_backoff_ms"}  # for tests, as its name says
    assert set(listed) == set(OPTION_KEYS) - unlisted


def test_it_is_short():
    """A newcomer reads all of it: at most 120 lines."""
    assert len(README.splitlines()) <= 120


def test_its_figures_are_measured():
    """The flood is the table's of performance.md, and so are the others that the README repeats."""
    performance = (Path(__file__).parents[1] / "docs" / "performance.md").read_text("utf-8")
    (row,) = [line for line in README.splitlines() if line.startswith("| connections in 10 s to a peer")]
    plain, ours = [cell.strip() for cell in row.split("|")[2:4]]

    assert f"**{plain} times in 10 s**" in README
    assert f"{int(plain):,} times in 10 s by sixteen workers, and {ours} times" in HOME
    assert f"**{ours} times**" in README.replace("\n", " ")
    assert [figure for figure in (plain, ours) if f"| {int(figure):,} |" not in performance] == []
