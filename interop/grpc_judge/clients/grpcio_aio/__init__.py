"""The peer that makes its calls on grpcio's asyncio channel."""
