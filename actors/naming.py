"""The name of a process of a replica, in the list of processes and in its log lines.

On a machine with several clusters, the cluster's name tells them apart.
"""

from __future__ import annotations

import logging

import setproctitle


def name_process(cluster: str, node: int, process: str) -> None:
    """Set this process' title, and put the same name into its log lines."""
    setproctitle.setproctitle(f"logstore {cluster} node {node} {process}")
    logging.basicConfig(
        level=logging.INFO,
        force=True,  # a child has the supervisor's name so far
        format=f"%(asctime)s %(levelname)s {cluster} node {node} {process}: %(message)s",
    )
