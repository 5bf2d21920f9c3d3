"""The interop suite: servers that fail on purpose, clients of several kinds, and verdicts on how the clients connect.

It is not part of the library: nothing in `grpc_backoff` imports it. `python -m interop --help` lists its commands.
"""
