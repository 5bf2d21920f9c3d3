"""The client of connectrpc (ConnectRPC for Python), using the gRPC protocol."""
