"""etcd, as Debian builds it."""
