"""An event loop in a separate thread, for blocking code that needs one."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class LoopThread:
    """Runs coroutines and functions, one at a time, on an event loop in a separate thread."""

    def __init__(self, factory=asyncio.new_event_loop):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(factory, ready), name="the test's event loop")
        self._thread.start()
        ready.wait()

    def _serve(self, factory, ready):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._until_closed(ready))

    async def _until_closed(self, ready):
        self._loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await self._closed.wait()

    def start(self, work):
        """Start a coroutine on the loop; return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work, within=20):
        """Run a coroutine on the loop; return its result."""
        return self.start(work).result(within)

    def do(self, function, *args, **how):
        """Call a function on the loop; return its result."""

        async def work():
            return function(*args, **how)

        return self.run(work())

    def close(self):
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def on_a_thread(context):
    """Enter an asynchronous context manager on a loop in another thread; yield its value and the loop."""
    loop = LoopThread()
    try:
        value = loop.run(context.__aenter__())
        try:
            yield value, loop
        finally:
            loop.run(context.__aexit__(None, None, None))
    finally:
        loop.close()
