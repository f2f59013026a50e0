"""How a process of a replica is called: in the list of processes, and at the head of its log lines.

On a machine with several clusters the cluster's name is what tells them apart.
"""

from __future__ import annotations

import logging

import setproctitle


def name_process(cluster: str, node: int, process: str) -> None:
    """Give this process its title, and its log lines the same words."""
    setproctitle.setproctitle(f"logstore {cluster} node {node} {process}")
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s {cluster} node {node} {process}: %(message)s",
    )
