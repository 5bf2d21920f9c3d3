"""The peer that makes its calls with grpclib, which implements gRPC for asyncio in pure Python."""
