"""nginx, with `grpc_pass`."""
