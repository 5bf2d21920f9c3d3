"""The interop suite: servers that fail on purpose, clients in several languages, and verdicts on how they connect.

It is not part of the library, and nothing in `grpc_backoff` imports it. `python -m interop --help` lists its commands.
"""
