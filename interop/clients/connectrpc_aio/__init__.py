"""connectrpc, ConnectRPC for Python, speaking gRPC."""
