"""The life of a call, without I/O: what is decided about waiting, attempts and retries.

Internal: programs import from `grpc_backoff`.
"""
