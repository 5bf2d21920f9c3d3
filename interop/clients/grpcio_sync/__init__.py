"""grpcio's threaded client."""
