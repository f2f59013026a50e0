"""Both logs and META on disk: written, recovered and read. See the README of this package."""
