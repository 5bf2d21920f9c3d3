"""Backoff policies as pure values: nothing here imports grpc, asyncio, time or random.

Internal, except for `presets`: programs import from `grpc_backoff`.
"""
