"""One module for each benchmark. Each defines `BENCHMARK`, and its docstring explains why the comparison is fair."""
