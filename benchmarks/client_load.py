"""One load of the public client, run as a script: so that it can be run with any checkout's client.

Prints what it took as JSON. Knows nothing but the public client, in what versions have in common.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import logstore

PATIENCE_S = 60.0


def append(client: logstore.LogClient, payload: bytes, count: int) -> None:
    """As fast as the window lets it, one payload an append."""
    with client.producer() as producer:
        for _ in range(count):
            producer.append(payload)
        producer.flush(PATIENCE_S)


def append_one_at_a_time(client: logstore.LogClient, payload: bytes, count: int) -> None:
    """The next once the last one is acknowledged."""
    with client.producer() as producer:
        for _ in range(count):
            producer.append(payload).result(PATIENCE_S)


def read(client: logstore.LogClient, _payload: bytes, count: int) -> None:
    """A range, every payload looked at."""
    seen = sum(len(batch) for batch in client.read(1, count))
    if seen < count:
        raise SystemExit(f"{seen} payloads were read instead of {count}")


LOADS: dict[str, Callable[[logstore.LogClient, bytes, int], None]] = {
    "append": append,
    "one at a time": append_one_at_a_time,
    "read": read,
}


def main() -> None:
    endpoints, load, payload_bytes, count = sys.argv[1:]
    payload = os.urandom(int(payload_bytes))
    with logstore.connect(endpoints, timeout=PATIENCE_S) as client:
        client.admin.commit_lsn()  # who leads is known before the clock runs
        started_s, cpu_started_s = time.perf_counter(), time.process_time()
        LOADS[load](client, payload, int(count))
        seconds = time.perf_counter() - started_s
        cpu_s = time.process_time() - cpu_started_s
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "from": logstore.__file__}))


if __name__ == "__main__":
    main()
