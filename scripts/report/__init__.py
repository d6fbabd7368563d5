"""Turns benchmark JSON into the tables and plots of docs/performance.md."""
