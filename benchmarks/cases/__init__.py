"""One module for each benchmark; each has a `BENCHMARK`, and says what is compared with what, and why that is fair."""
