"""grpcio's asyncio client."""
