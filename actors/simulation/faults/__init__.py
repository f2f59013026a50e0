"""See the README of actors.simulation."""
