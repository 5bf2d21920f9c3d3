"""The threaded client of grpc_backoff."""
