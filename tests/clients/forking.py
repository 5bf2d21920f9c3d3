"""A program for gunicorn, Celery and forks in C that uses a channel before the fork, and again in each child.

`FORKING_API` selects the constructor of the channels. `FORKING_BEFORE` says what the parent does before the fork: with
`nothing`, it makes no channel; with `closed`, it makes, uses and closes one; with `open`, it keeps one connected.
"""

from __future__ import annotations

import asyncio
import os
import time

import grpc
import grpc.aio

import grpc_backoff
from grpc_backoff import aio

METHOD = "/forking/Ask"
TARGET = os.environ.get("FORKING_TARGET")
API = os.environ.get("FORKING_API", "threads")
BEFORE = os.environ.get("FORKING_BEFORE", "nothing")
MAKERS = {
    "plain": grpc.insecure_channel,
    "threads": grpc_backoff.insecure_channel,
    "plain asyncio": grpc.aio.insecure_channel,
    "asyncio": aio.insecure_channel,
}
MAKE = MAKERS[API]
FOLDERS = ("data_folder_in", "data_folder_out", "control_folder")
"""The options for the folders of Celery's broker, which are in the working directory by default."""


def ask_over(channel):
    return channel.unary_unary(METHOD)(b"asked", timeout=10).decode()


async def ask_over_async(channel):
    return await channel.unary_unary(METHOD)(b"asked", timeout=10)


async def ask_once():
    async with MAKE(TARGET) as channel:
        return (await ask_over_async(channel)).decode()


def ask():
    """Return the answer to a call on a new channel in this process, or the name of its error."""
    try:
        if API.endswith("asyncio"):
            return asyncio.run(ask_once())
        with MAKE(TARGET) as channel:
            return ask_over(channel)
    except Exception as error:  # noqa: BLE001 - the test checks its type
        return type(error).__name__


def ask_inherited():
    """Return the outcome of a call on the parent's channel; None if the parent left none open."""
    if INHERITED is None:
        return None
    try:
        if API.endswith("asyncio"):
            return LOOP.run_until_complete(ask_over_async(INHERITED)).decode()
        return ask_over(INHERITED)
    except Exception as error:  # noqa: BLE001 - as above
        return type(error).__name__


INHERITED = None
if BEFORE == "closed":
    assert ask() == "asked"
elif BEFORE == "open" and API.endswith("asyncio"):
    LOOP = asyncio.new_event_loop()
    asyncio.set_event_loop(LOOP)
    INHERITED = MAKE(TARGET)
    assert ask_inherited() == "asked"
elif BEFORE == "open":
    INHERITED = MAKE(TARGET)
    assert ask_over(INHERITED) == "asked"
if BEFORE != "nothing":
    time.sleep(1.5)  # the core connects and shuts down in its own threads


def answer():
    """Return a text that says which channels work in this process."""
    return f"{ask_inherited()} {ask()} {ask()}"


def wsgi(environ, start_response):
    """The application that gunicorn serves."""
    said = answer()
    start_response("200 OK", [("content-type", "text/plain")])
    return [said.encode()]


if "FORKING_BROKER" in os.environ:
    from celery import Celery

    FOLDER = os.environ["FORKING_BROKER"]
    celery = Celery("forking", broker="filesystem://", backend=f"file://{FOLDER}")
    celery.conf.broker_transport_options = dict.fromkeys(FOLDERS, FOLDER)
    celery.task(answer, name="answer")
