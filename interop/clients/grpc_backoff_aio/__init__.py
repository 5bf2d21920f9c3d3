"""The asyncio client of grpc_backoff."""
