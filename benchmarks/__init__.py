"""Measurements: see README.md of this package."""
