"""HAProxy, using HTTP/2 for both its clients and its server."""
