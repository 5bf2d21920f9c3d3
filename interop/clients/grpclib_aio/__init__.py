"""grpclib, gRPC for asyncio in Python alone."""
