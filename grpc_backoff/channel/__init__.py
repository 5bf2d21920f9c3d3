"""The code that asyncio and threaded channels have in common: methods, calls and their failures, and forks.

Internal: programs import from `grpc_backoff`.
"""
