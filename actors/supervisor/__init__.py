"""The parent process of a replica: it starts, watches, restarts and stops its children."""

from actors.supervisor.serve import serve_processes

__all__ = ["serve_processes"]
