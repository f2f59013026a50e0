"""What one replica says about its cluster: its own node, the leader, the nodes' addresses.

Pure: the document of a MetadataReply in, a `Metadata` out.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.requests import NO_CLUSTER
from logstore.client.endpoint import Endpoint, parse_endpoint
from logstore.errors import FormatError
from logstore.limits import NODES_MAX

# Voters, those that take their places, and learners.
MEMBERS_MAX = 3 * NODES_MAX


class Metadata(msgspec.Struct, frozen=True):
    """One replica's answer. `leader` 0: it knows none. `limits`: of its configuration, by name.
    `nodes`: of the members' configuration with the id `configuration`, 0: of its file. `roles`:
    "voter" or "learner"."""

    cluster_id: bytes
    node: int
    leader: int
    term: int
    nodes: dict[int, Endpoint]
    limits: dict[str, int]
    configuration: int = 0
    roles: dict[int, str] = {}


class _NodeDocument(msgspec.Struct):
    node: int
    host: str
    port: int
    role: str = "voter"


class _MetadataDocument(msgspec.Struct):
    cluster_id: str
    node: int
    leader: int
    term: int
    nodes: list[_NodeDocument]
    limits: dict[str, int] = {}
    configuration: int = 0


def parse_metadata(document: bytes) -> Metadata:
    """The metadata in a reply's JSON.

    Raises:
      FormatError: it is not valid.
    """
    try:
        found = msgspec.json.decode(document, type=_MetadataDocument)
        cluster_id = bytes.fromhex(found.cluster_id) or NO_CLUSTER
        nodes = {row.node: parse_endpoint(f"{row.host}:{row.port}") for row in found.nodes}
    except ValueError as error:
        raise FormatError(f"metadata of a replica: {error}") from error
    if len(cluster_id) != len(NO_CLUSTER) or len(nodes) > MEMBERS_MAX:
        raise FormatError(
            f"metadata of a replica: a cluster id of {len(cluster_id)} bytes, {len(nodes)} nodes"
        )
    roles = {row.node: row.role for row in found.nodes}
    return Metadata(
        cluster_id,
        found.node,
        found.leader,
        found.term,
        nodes,
        found.limits,
        found.configuration,
        roles,
    )
