"""A ledger reads its tables' SQL from files."""

from PyInstaller.utils.hooks import collect_data_files

datas = collect_data_files("grpc_backoff.ledger.schema")
