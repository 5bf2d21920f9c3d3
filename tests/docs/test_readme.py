"""The README: its code is run, and its options table matches the code."""

from __future__ import annotations

import asyncio
import importlib
import re

import pytest

from grpc_backoff import aio
from grpc_backoff.config.options import OPTION_KEYS
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.jitter import Proportional
from grpc_backoff.policy.presets import PRESETS
from tests.docs.pages import ADDRESS, block, blocks, read, run

PAGE = "../README.md"
README = read(PAGE)
HOME, OPTIONS, PERFORMANCE = read("index.md"), read("reference/options.md"), read("benchmarks.md")


@pytest.fixture
def names(shop):
    """Return what the README's blocks take from the reader's own program."""
    stub, order = importlib.import_module("shop_pb2_grpc").OrdersStub, importlib.import_module("shop_pb2").Order
    return {"OrdersStub": stub, "Order": order, "order": order(id="order-1"), "aio": aio}


async def test_five_lines(names, port, capsys):
    """CH-1, TH-1: the programs at the top run unchanged, except for the address."""
    async with asyncio.timeout(30):
        await run(block(PAGE, "async def main()").replace(ADDRESS, f"localhost:{port}"), PAGE, names)
        await names["main"]()
        code = block(PAGE, "with grpc_backoff.insecure_channel")
        await run(code.replace(ADDRESS, f"localhost:{port}"), PAGE, names)
    assert capsys.readouterr().out == 'id: "order-1"\n\n' * 2


async def test_retry_calls(names, port):
    """RT-1: the README's channel and call with retries work as shown."""
    channel, call = block(PAGE, "aio.retrying(").replace(ADDRESS, f"localhost:{port}").splitlines()
    exec(channel, names)
    async with names["channel"], asyncio.timeout(30):
        names["stub"] = names["OrdersStub"](names["channel"])
        await run(call, PAGE, names)
    assert names["reply"].id == "order-1"


async def test_see_and_control(port, capsys):
    """CH-11, CB-9: the methods that this library adds to grpc's channel work as the README shows."""
    async with aio.insecure_channel(f"localhost:{port}") as channel, asyncio.timeout(30):
        await run(block(PAGE, "channel.add_listener("), PAGE, {"channel": channel})
        await channel.channel_ready()
    assert "Connected(" in capsys.readouterr().out


def test_every_block_is_run():
    """CH-1: the tests here run every Python block of the README."""
    tested = ["async def main()", "with grpc_backoff.insecure_channel", "channel.add_listener(", "aio.retrying("]
    assert [block(PAGE, saying) for saying in tested] == blocks(PAGE)


def test_the_options_table_is_complete():
    """CH-9: the table lists exactly the options that this library uses."""
    connecting = OPTIONS.partition("## Connecting")[2].partition("\n## ")[0]
    unlisted = {"grpc.testing.fixed_reconnect_backoff_ms"}  # for tests only
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", connecting, re.MULTILINE)) == set(OPTION_KEYS) - unlisted


def shown(setting):
    """Return a setting's default as the options page writes it."""
    default = PRESETS["grpc"].get(setting.part or setting.name, "grpc")
    match default:
        case Reconnect():
            return f"`{default.value}`"
        case Proportional():
            return f"{default.fraction:g}"
        case bool() | str():
            return f"`{default}`" if default == "grpc" else str(default)
        case _:
            return f"{default * (1000 if setting.unit is Unit.MILLISECONDS else 1):.7g}"


@pytest.mark.parametrize("setting", CONNECTING, ids=lambda setting: setting.name)
def test_the_options_table_has_the_defaults(setting):
    """CH-9: the table says the default that each option is declared with."""
    assert f"| `{setting.option}` | {shown(setting)} |" in OPTIONS


def test_it_is_short():
    """The README has at most 120 lines, so that newcomers read all of it."""
    assert len(README.splitlines()) <= 120


def test_its_figures_are_measured():
    """The figures for a flood in the README and on Home match the table in benchmarks.md."""
    prose = README.replace("\n ", "")
    figures = r"plain grpcio connects ([\d,]+) times, and this channel connects ([\d,]+) times"
    ((plain, ours),) = re.findall(figures, prose)

    assert f"plain grpcio connects {plain} times, and this channel connects {ours} times" in HOME.replace("\n ", "")
    assert [figure for figure in (plain, ours) if f"| {figure} |" not in PERFORMANCE] == []


def test_its_cost_is_measured():
    """The cost of an attempt in the README matches the table in benchmarks.md."""
    (ratio,) = re.findall(r"^\| CPU of an attempt to connect.* \| 1 \| (\S+) \|$", README, re.MULTILINE)
    (row,) = re.findall(r"^\| 50 channels, peer hangs up \| grpc_backoff.aio \|.*$", PERFORMANCE, re.MULTILINE)
    assert f"| {ratio} |" in row


def test_its_ratio_is_measured():
    """The relative time of a call in the README matches the table in benchmarks.md."""
    (ratio,) = re.findall(r"^A call takes (\S+) times", README, re.MULTILINE)
    (row,) = [
        row for row in PERFORMANCE.splitlines() if row.startswith("| unary, 1 at a time, asyncio | grpc_backoff.aio")
    ]
    assert f"| {ratio} | " in row
