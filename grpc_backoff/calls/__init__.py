"""The life of a call, without I/O: all decisions about waiting, attempts and retries.

Internal: programs import from `grpc_backoff`.
"""
