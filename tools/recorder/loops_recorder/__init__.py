"""Runs training loops of packages on CPU, each out of the package's own files, and says what each sample weighed in each update."""
