"""Programs that show the library at work on real servers."""
