"""A server that answers as scripted by the test, and records what it executed and received."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc

from tests.echo import Echo


class Shop(Echo):
    """An Echo server whose behaviour is scripted for each request.

    `script` maps a request's text, or "*" for any text, to a list of steps. Each attempt takes the next step: a status
    code to fail with, a pair of a code and trailing metadata or details, a number of seconds to wait before answering,
    or None to answer at once. `levels` records, for each attempt as it began, how many attempts were running, including
    itself.
    """

    def __init__(self):
        super().__init__()
        self.script = {}
        self.metadata = []
        self.keys = Counter()
        self.running = 0
        self.levels = []

    async def Unary(self, request, context):  # noqa: N802
        self.executed[request.text] += 1
        sent = dict(context.invocation_metadata())
        self.metadata.append(sent)
        self.keys[sent.get("idempotency-key")] += 1
        self.running += 1
        self.levels.append(self.running)
        try:
            steps = self.script.get(request.text) or self.script.get("*")
            step = steps.pop(0) if steps else None
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, tuple):
                code, said = step
                details = said if isinstance(said, str) else "as scripted"
                context.set_trailing_metadata(() if isinstance(said, str) else said)
                await context.abort(code, details)
            elif isinstance(step, grpc.StatusCode):
                await context.abort(step, "as scripted")
            return request
        finally:
            self.running -= 1
