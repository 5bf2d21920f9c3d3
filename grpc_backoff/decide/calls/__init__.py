"""Decides about the waits, attempts and retries of calls, without doing any I/O.

Internal: programs import from `grpc_backoff`.
"""
