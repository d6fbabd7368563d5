"""Turns benchmark JSON into docs/benchmarks/<device>.md and the plots."""
