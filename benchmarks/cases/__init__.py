"""One module for each benchmark; each has a `BENCHMARK`, and says what is set beside what, and why that is fair."""
