"""nginx, using `grpc_pass`."""
