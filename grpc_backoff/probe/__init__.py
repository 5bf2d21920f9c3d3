"""Dials with asyncio and h2, stage by stage, to find out why a server cannot be reached.

Internal: programs import from `grpc_backoff`.
"""
