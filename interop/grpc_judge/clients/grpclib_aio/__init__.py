"""The client of grpclib, which implements gRPC for asyncio in pure Python."""
