"""HAProxy, with HTTP/2 on both sides."""
