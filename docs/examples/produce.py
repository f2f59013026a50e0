"""Appends the lines of standard input to a log, each once and in order, while leaders come and go.

    python produce.py 127.0.0.1:7100,127.0.0.1:7110,127.0.0.1:7120 < lines

Prints "LSN<tab>line" once a majority of the replicas has a line on disk. From PROTOCOL.md, section
12, alone; needs pyzmq only. Where zmq.Again is raised, step 4 of that section follows.
"""

import json
import struct
import sys
import time

import zmq

ENVELOPE, BATCH = struct.Struct("<4sHHII16s16sIIQ"), struct.Struct("<4sHHIIQIIQQii")
OPENED, STATE, ROW = struct.Struct("<QIIQQQ"), struct.Struct("<QIQ"), struct.Struct("<QQIIQ")
ASK_METADATA, ASK_OPEN, ASK_STATE, ERROR, ACKS = 64, 66, 68, 74, 128
COMMITTED, NOT_NOW = {0, 10}, {1, 2, 3, 4, 5, 6, 8, 19, 21}
METADATA_S, STATE_S, OPEN_S, ACK_S, PAUSE_S = 1.0, 2.0, 10.0, 2.0, 0.05
OPTIONS = {zmq.LINGER: 0, zmq.IMMEDIATE: 1, zmq.RECONNECT_IVL: -1, zmq.TCP_KEEPALIVE: 1,
           zmq.SNDTIMEO: 1000}  # fmt: skip
NEW = struct.pack("<QIII", 0, 1, 1, 0)  # a new producer, dense, level quorum, any window, no name
TABLE = list(range(256))  # of CRC32C
for _ in range(8):
    TABLE = [crc >> 1 ^ 0x82F63B78 * (crc & 1) for crc in TABLE]


def sealed(head, place, body):
    """Head and body, with the CRC of both at `place` of the head."""
    crc = 0xFFFFFFFF
    for byte in head[:place] + head[place + 4 :] + body:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return head[:place] + struct.pack("<I", crc ^ 0xFFFFFFFF) + head[place + 4 :] + body


def refused(code, text=""):
    if code not in NOT_NOW:
        sys.exit(f"refused with code {code} {text}: what has no LSN may be committed or not")
    raise zmq.Again


class Producer:
    def __init__(self, nodes):
        self.nodes, self.context, self.cluster = nodes, zmq.Context(), bytes(16)
        for option, value in OPTIONS.items():
            self.context.setsockopt(option, value)
        self.term = self.correlation = self.next_sequence = 0
        self.socket, self.session, self.unresolved = self.context.socket(zmq.DEALER), None, {}

    def run(self, lines):
        while True:
            try:
                self.begin()
                window = min(self.session[2], self.session[3] // self.session[4])
                for line in lines:  # an iterator: those that were sent do not come again
                    self.append(line.rstrip(b"\n"))
                    while len(self.unresolved) >= window or self.socket.poll(0):
                        self.receive(self.socket, self.news_s + ACK_S)
                while self.unresolved:
                    self.receive(self.socket, self.news_s + ACK_S)
                return
            except zmq.Again:
                time.sleep(PAUSE_S)

    def append(self, line):
        body = line + bytes(-len(line) % 8)
        numbers = *self.session[:2], 0, self.next_sequence, time.time_ns(), 0, len(line)
        batch = sealed(BATCH.pack(b"LBAT", 1, 0, 8 + len(body), 1, *numbers), 28, body)
        if not self.unresolved:
            self.news_s = time.monotonic()
        self.unresolved[self.next_sequence] = struct.pack("<2sHI", b"LA", 1, 0) + batch, line
        self.next_sequence += 1
        self.socket.send(self.unresolved[self.next_sequence - 1][0])

    def begin(self):
        """Find the leader, open the session once, learn what became of the lines that were sent."""
        self.socket.close()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(f"tcp://{self.find_leader()}")
        if not self.session:
            self.session = OPENED.unpack(self.request(self.socket, ASK_OPEN, NEW, OPEN_S))
        ours = struct.pack("<QII", *self.session[:2], 0)
        reply = self.request(self.socket, ASK_STATE, ours, STATE_S)
        next_sequence, waiting = STATE.unpack_from(reply)[2], sorted(self.unresolved)
        rows = {row[0]: row for row in ROW.iter_unpack(reply[STATE.size :])}
        if next_sequence < (waiting or [self.next_sequence])[0]:
            sys.exit("the leader knows less than was acknowledged: look at the cluster")
        for sequence in waiting:
            if sequence >= next_sequence:
                self.socket.send(self.unresolved[sequence][0])
            elif sequence not in rows or rows[sequence][3] == 0:
                self.resolve(sequence, rows[sequence][1] if sequence in rows else "?")
        self.news_s = time.monotonic()

    def find_leader(self):
        leader, term = None, self.term
        for node in self.nodes:  # which grow on the way
            with self.context.socket(zmq.DEALER) as socket:
                socket.connect(f"tcp://{node}")
                try:
                    found = json.loads(self.request(socket, ASK_METADATA, b"", METADATA_S))
                except zmq.Again:
                    continue
            addresses = [f"{row['host']}:{row['port']}" for row in found["nodes"]]
            self.nodes += [address for address in addresses if address not in self.nodes]
            if found["leader"] == found["node"] and found["term"] >= term:
                leader, term, members = found, found["term"], addresses
        self.term, self.nodes = (leader and (term, members)) or refused(1)
        row = next(row for row in leader["nodes"] if row["node"] == leader["node"])
        port = row.get("produce_port") or sys.exit("this cluster is too old, or has no such port")
        return f"{row['host']}:{port}"

    def request(self, socket, kind, body, seconds):
        self.correlation += 1
        numbers = len(body), 0, self.cluster, bytes(16), 0, 0, self.correlation
        socket.send(sealed(ENVELOPE.pack(b"LMSG", 1, kind, *numbers), 12, body))
        until_s = time.monotonic() + seconds
        while (reply := self.receive(socket, until_s)) is None:
            pass
        return reply

    def receive(self, socket, until_s):
        """The reply to the last request; None: another message. Rows of batches are used up."""
        if not socket.poll(max(0, 1000 * (until_s - time.monotonic()))):
            raise zmq.Again
        frame = socket.recv()
        head, body = frame[:64], frame[64:]
        if len(head) < 64 or sealed(head, 12, body) != frame:
            return None  # damaged, as if it was lost
        _, version, kind, _, _, cluster, *_, correlation = ENVELOPE.unpack(head)
        if version != 1 or self.cluster not in (bytes(16), cluster):
            sys.exit(f"this is another cluster, or version {version} of the protocol")
        self.cluster = cluster
        if correlation == self.correlation and kind == ERROR:
            refused(struct.unpack_from("<I", body)[0], body[24:].decode())
        for sequence, lsn, _, code, _ in ROW.iter_unpack(body[16:] if kind == ACKS else b""):
            if sequence in self.unresolved and code not in COMMITTED:
                refused(code)
            elif sequence in self.unresolved:
                self.resolve(sequence, lsn or "?")
        return body if correlation == self.correlation else None

    def resolve(self, sequence, lsn):
        print(lsn, self.unresolved.pop(sequence)[1].decode(), sep="\t", flush=True)
        self.news_s = time.monotonic()


if __name__ == "__main__":
    Producer(sys.argv[1].split(",")).run(iter(sys.stdin.buffer))
