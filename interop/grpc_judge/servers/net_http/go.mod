module grpc-backoff/interop/grpc_judge/servers/net_http

go 1.26.0
