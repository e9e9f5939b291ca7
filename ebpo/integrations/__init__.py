"""EBPO inside other trainers: `trl` and `verl`, each importable only where its library is installed."""
