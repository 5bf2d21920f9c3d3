"""What every run of the suite needs, whoever is judged: manifests, builds, processes and views."""
