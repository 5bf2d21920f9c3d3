"""Does a fleet that loses its server reconnect all at once? The simulation behind `docs/dispersal.md`."""
