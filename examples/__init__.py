"""Programs that demonstrate the library against real servers."""
