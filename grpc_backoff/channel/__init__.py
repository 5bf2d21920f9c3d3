"""The code that asyncio and threaded channels have in common: settings, methods, and the failures of calls.

Internal: programs import from `grpc_backoff`.
"""
