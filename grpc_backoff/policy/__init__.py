"""Backoff policies as pure values: nothing here imports grpc, asyncio, time or random.

Internal, but for `presets`: programs import from `grpc_backoff`.
"""
