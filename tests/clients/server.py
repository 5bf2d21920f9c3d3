"""A server whose methods a test defines, and which the test can kill and restart on the same port.

It runs in threads, so a test may block; in an asyncio test, `kill` and `restart` need a thread of their own.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc


class Server:
    """Answers each method with a function of the request's bytes, or with a generator of the stream's requests.

    Attributes:
        calls: how many calls of each method arrived.
        metadata: the metadata of the last call of each method.
    """

    def __init__(self, credentials=None):
        self.methods = {}
        self.calls = Counter()
        self.metadata = {}
        self.port = 0
        self._credentials = credentials
        self._server = None

    @property
    def target(self):
        return f"localhost:{self.port}"

    def service(self, details):
        """Return the handler for a method; grpc's server calls this (see `grpc.GenericRpcHandler`)."""
        function = self.methods.get(details.method)
        if function is None:
            return None
        self.calls[details.method] += 1
        self.metadata[details.method] = dict(details.invocation_metadata)
        if inspect.isgeneratorfunction(function):
            return grpc.stream_stream_rpc_method_handler(function)
        if getattr(function, "streams", False):
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([function(request)]))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: function(request))

    def start(self):
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        until(self._bind)
        self._server.start()

    def _bind(self):
        """Return whether the port is free again: in a restart, a connection of another program may have got it."""
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(self.target)
            else:
                self.port = self._server.add_secure_port(self.target, self._credentials)
        except RuntimeError:
            return False
        return True

    def kill(self):
        """Stop at once: running calls fail, and new connections are refused."""
        if self._server is not None:
            self._server.stop(None).wait(20)
            self._server = None

    def restart(self, after=0.3):
        """Stop the server for this many seconds, then start it again."""
        self.kill()
        time.sleep(after)
        self.start()


grpc.GenericRpcHandler.register(Server)


def until(condition, within=20.0):
    """Wait until the condition is true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)
