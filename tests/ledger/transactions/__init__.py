"""The ledger: operations that outlive the process."""
