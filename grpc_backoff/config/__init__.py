"""Reading what was configured: options, files, policy strings and service configs become policies."""
