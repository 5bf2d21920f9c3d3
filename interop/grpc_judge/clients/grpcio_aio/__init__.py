"""The client of grpcio's asyncio channel."""
