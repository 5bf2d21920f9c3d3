"""The version of this library, in a module of its own that imports nothing.

Internal: programs import from `grpc_backoff`.
"""

__version__ = "0.2.0"
