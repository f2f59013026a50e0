"""A process that appends 1 KiB to this log again and again, one at a time, until it is killed.

Says for each append a line: when it was sent, when it was acknowledged, in monotonic ns. Its
arguments are the endpoints.
"""

from __future__ import annotations

import sys

import logstore
from logstore.cli.embedded import poll_until
from logstore.client.clock import monotonic_ns

PAUSE_S = 0.002
DELIVERY_TIMEOUT_S = 60.0


def main() -> None:
    options = logstore.ProducerOptions(linger_ms=0.0, delivery_timeout_s=DELIVERY_TIMEOUT_S)
    with logstore.connect(sys.argv[1:]) as log, log.producer(options) as producer:
        while True:
            sent_ns = monotonic_ns()
            producer.append(bytes(1_024)).result(timeout=DELIVERY_TIMEOUT_S)
            print(sent_ns, monotonic_ns(), flush=True)
            poll_until(lambda: False, PAUSE_S, look_ms=1)


if __name__ == "__main__":
    main()
