"""The README: its code is run, and its options table matches the code."""

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
    """Return the one code block that contains this text, wherever on the page it is."""
    (found,) = [block for block in BLOCKS if saying in block]
    return found


async def test_the_ten_lines(capsys):
    """CH-1: the README's first program runs unchanged, except for the address."""
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
    """RT-1: the README's channel and call with retries work as shown."""
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
    """CH-11, CB-9: the methods that this library adds to grpc's channel work as the README shows."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        exec(compile(block("channel.add_listener("), "README.md", "exec"), {"channel": channel})
        await asyncio.wait_for(channel.channel_ready(), 30)
    assert "Connected(" in capsys.readouterr().out


def test_every_block_is_run():
    """CH-1: the tests here run every Python block of the README."""
    run = ["async def main()", "channel.add_listener(", "aio.retrying("]
    assert [block(saying) for saying in run] == BLOCKS


@pytest.mark.parametrize(
    "page", [README, OPTIONS.partition("## Connecting")[2].partition("\n## ")[0]], ids=["README", "options"]
)
def test_the_options_table_is_complete(page):
    """CH-9: the tables list exactly the options that this library uses."""
    listed = re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE)
    unlisted = {"grpc.testing.fixed_reconnect_backoff_ms"}  # for tests only
    assert set(listed) == set(OPTION_KEYS) - unlisted


def test_it_is_short():
    """The README has at most 120 lines, so that newcomers read all of it."""
    assert len(README.splitlines()) <= 120


def test_its_figures_are_measured():
    """The figures for a flood in the README and on Home match the table in performance.md."""
    performance = (Path(__file__).parents[1] / "docs" / "performance.md").read_text("utf-8")
    (row,) = [line for line in README.splitlines() if line.startswith("| connections in 10 s to a peer")]
    plain, ours = [cell.strip() for cell in row.split("|")[2:4]]

    assert f"**{plain} times in 10 s**" in README
    assert f"{int(plain):,} times in 10 s by sixteen workers, and {ours} times" in HOME
    assert f"**{ours} times**" in README.replace("\n", " ")
    assert [figure for figure in (plain, ours) if f"| {int(figure):,} |" not in performance] == []


@pytest.mark.parametrize(
    ("start", "figure", "subject"),
    [
        ("| time of a unary call on a READY channel", r"\| (\S+) \(95 %: (\S+ to \S+)\) \|", "grpc_backoff.aio"),
        ("with itself in the same run", r"the ratio was (\S+) \((\S+ to \S+)\)", "grpc.aio, again"),
    ],
)
def test_its_ratios_are_measured(start, figure, subject):
    """The ratios in the README match the table in performance.md."""
    performance = (Path(__file__).parents[1] / "docs" / "performance.md").read_text("utf-8")
    (line,) = [line for line in README.splitlines() if line.startswith(start)]
    ratio, interval = re.search(figure, line).groups()
    (row,) = [row for row in performance.splitlines() if row.startswith(f"| unary, 1 at a time, asyncio | {subject} |")]
    assert f"| {ratio} | {interval} |" in row
