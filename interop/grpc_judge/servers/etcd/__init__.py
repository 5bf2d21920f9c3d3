"""etcd, in the version that Debian packages."""
