"""Policies: numbers in, delays out. Nothing here imports grpc, asyncio, time or random."""
