"""grpclib, gRPC for asyncio in pure Python."""
