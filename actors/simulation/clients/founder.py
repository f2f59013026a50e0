"""An operator who forms the cluster, where it does not form itself (SAFETY L2).

Asks as a user does, or any node by hand, until one says that the log begins where it was told to.
"""

from __future__ import annotations

from actors.simulation.clients.asking import Asking
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import initialize
from logstore.client.core.steps import Steps
from logstore.format.client_messages import DoneReply, InitializeRequest
from logstore.format.first_lsn import pack_first_lsn
from logstore.settings import PortOffset

_ANSWER_S = 1.0  # a node may wait ten seconds for the others; another one may be quicker


class Founder:
    """A subject."""

    ask_every_ns = 150 * MS_NS

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def ask(self) -> Steps[None]:
        asking, host = self._asking, self._asking.host
        if host.random.random() < 0.5:
            yield from initialize(asking.cluster(), first_lsn=int(host.first_lsn))
        else:
            port = asking.port(host.endpoint(host.any_node(), PortOffset.CONTROL))
            request = InitializeRequest(pack_first_lsn(host.first_lsn))
            deadline_ns = asking.core.deadline_ns(_ANSWER_S + asking.patience_s())
            try:
                yield from port.request(request, DoneReply, deadline_ns=deadline_ns)
            finally:
                port.close()
        asking.witness.count("formed")
        asking.stop()
