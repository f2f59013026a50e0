"""See the README of this package."""
