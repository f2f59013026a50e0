// Appends the lines of standard input to a log, each once, in order, while leaders come and go:
//     npm install && node produce.js 127.0.0.1:7100,127.0.0.1:7110,127.0.0.1:7120 < lines
// Prints "LSN<tab>line" once a majority of the replicas has a line on disk. From PROTOCOL.md,
// section 12, alone; needs npm's zeromq. After an error EAGAIN, step 4 of that section follows.
const readline = require("node:readline"), zmq = require("zeromq");
const ASK_METADATA = 64, ASK_OPEN = 66, ASK_STATE = 68, ERROR = 74, ACKS = 128;
const COMMITTED = [0, 10], NOT_NOW = [1, 2, 3, 4, 5, 6, 8, 19, 21];
const METADATA_MS = 1000, STATE_MS = 2000, OPEN_MS = 10000, ACK_MS = 2000, PAUSE_MS = 50;
const OPTIONS = {
  linger: 0, immediate: true, reconnectInterval: -1, tcpKeepalive: 1, sendTimeout: 1000,
};
const TABLE = Uint32Array.from({ length: 256 }, (_, crc) => { // of CRC32C
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  return crc;
});

/** Writes the CRC of the frame from `start` on, but of the 4 bytes at `place`, to this place. */
function seal(frame, start, place) {
  let crc = 0xffffffff;
  for (let at = start; at < frame.length; at++)
    if (at < place || at >= place + 4) crc = TABLE[(crc ^ frame[at]) & 255] ^ (crc >>> 8);
  return frame.writeUInt32LE((crc ^ 0xffffffff) >>> 0, place), frame;
}

function refused(code, text = "") {
  const error = new Error(`refused with code ${code} ${text}: what has no LSN has no outcome`);
  throw NOT_NOW.includes(code) ? Object.assign(error, { code: "EAGAIN" }) : error;
}

class Producer {
  cluster = Buffer.alloc(16); term = 0; correlation = 0n; next = 0n; newsMs = 0; session = null;
  socket = new zmq.Dealer(OPTIONS); unresolved = new Map(); // by sequence: { frame, line }

  async run(nodes, lines) {
    this.nodes = nodes;
    for (let ended = false; ; ) {
      try {
        await this.begin();
        while (!ended || this.unresolved.size) {
          const isFull = this.unresolved.size >= this.session.window || this.socket.readable;
          const line = ended || isFull ? null : await lines.next();
          if (line === null) await this.receive(this.socket, this.newsMs + ACK_MS);
          else if (!(ended = line.done)) await this.append(line.value);
        }
        return;
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        await new Promise((done) => setTimeout(done, PAUSE_MS));
      }
    }
  }

  async append(line) {
    const payload = Buffer.from(line), size = 8 + payload.length + (-payload.length & 7);
    const frame = Buffer.alloc(56 + size);
    frame.write("LA\x01\0\0\0\0\0LBAT\x01\0\0\0", "latin1");
    frame.writeUInt32LE(size, 16), frame.writeUInt32LE(1, 20), this.session.id.copy(frame, 24);
    frame.writeBigUInt64LE(this.next, 40), frame.writeBigUInt64LE(BigInt(Date.now()) * 1000000n, 48)
    frame.writeInt32LE(payload.length, 60), payload.copy(frame, 64);
    if (!this.unresolved.size) this.newsMs = Date.now();
    this.unresolved.set(this.next++, { frame: seal(frame, 8, 36), line });
    await this.socket.send(frame);
  }

  /** Find the leader, open the session once, learn what became of the lines that were sent. */
  async begin() {
    this.socket.close(), (this.socket = new zmq.Dealer(OPTIONS));
    this.socket.connect(`tcp://${await this.findLeader()}`);
    if (!this.session) {
      const body = Buffer.alloc(20); // a new producer, any window, no name
      body.writeUInt32LE(1, 8), body.writeUInt32LE(1, 12); // mode dense, level quorum
      const opened = await this.request(this.socket, ASK_OPEN, body, OPEN_MS);
      const large = Number(opened.readBigUInt64LE(16) / opened.readBigUInt64LE(24));
      const window = Math.min(opened.readUInt32LE(12), large);
      this.session = { id: opened.subarray(0, 12), window };
    }
    const ours = Buffer.concat([this.session.id, Buffer.alloc(4)]);
    const state = await this.request(this.socket, ASK_STATE, ours, STATE_MS);
    const rows = new Map(rowsOf(state, 20));
    const expected = state.readBigUInt64LE(12), [first = this.next] = this.unresolved.keys();
    if (expected < first) throw new Error("the leader knows less than was acknowledged");
    for (const [sequence, { frame }] of this.unresolved) {
      const row = rows.get(sequence);
      if (sequence >= expected) await this.socket.send(frame);
      else if (!row || row.code === 0) this.resolve(sequence, row ? row.lsn : "?");
    }
    this.newsMs = Date.now();
  }

  async findLeader() {
    let leader = null;
    for (const node of this.nodes) { // which grow on the way
      const socket = new zmq.Dealer(OPTIONS);
      socket.connect(`tcp://${node}`);
      const asked = this.request(socket, ASK_METADATA, Buffer.alloc(0), METADATA_MS);
      const found = await asked.then(JSON.parse).catch(() => ({ leader: 0, nodes: [] }));
      socket.close(), found.addresses = found.nodes.map((row) => `${row.host}:${row.port}`);
      this.nodes.push(...found.addresses.filter((address) => !this.nodes.includes(address)));
      if (found.leader === found.node && found.term >= (leader ?? this).term) leader = found;
    }
    if (!leader) refused(NOT_NOW[0]);
    this.term = leader.term, this.nodes = leader.addresses;
    const { host, produce_port: port } = leader.nodes.find((row) => row.node === leader.node);
    if (port) return `${host}:${port}`;
    throw new Error("this cluster is too old, or configured without a produce port");
  }

  async request(socket, type, body, timeoutMs) {
    const frame = Buffer.concat([Buffer.alloc(64), body]), untilMs = Date.now() + timeoutMs;
    frame.write("LMSG\x01\0", "latin1"), frame.writeUInt16LE(type, 6);
    frame.writeUInt32LE(body.length, 8), frame.writeBigUInt64LE(++this.correlation, 56);
    this.cluster.copy(frame, 16);
    await socket.send(seal(frame, 0, 12));
    for (let reply; ; ) if ((reply = await this.receive(socket, untilMs))) return reply;
  }

  /** The reply to the last request; null: another message. Rows of batches are used up. */
  async receive(socket, untilMs) {
    socket.receiveTimeout = Math.max(0, untilMs - Date.now());
    const [frame] = await socket.receive();
    const crc = frame.length < 64 ? -1 : frame.readUInt32LE(12);
    if (crc < 0 || seal(frame, 0, 12).readUInt32LE(12) !== crc) return null; // as if it was lost
    const body = frame.subarray(64), cluster = frame.subarray(16, 32);
    if (this.cluster.some(Boolean) && !this.cluster.equals(cluster)) refused("?", "other cluster");
    this.cluster = cluster;
    const type = frame.readUInt16LE(6), isReply = frame.readBigUInt64LE(56) === this.correlation;
    if (isReply && type === ERROR) refused(body.readUInt32LE(0), body.toString("utf8", 24));
    for (const [sequence, { lsn, code }] of type === ACKS ? rowsOf(body, 16) : []) {
      if (!this.unresolved.has(sequence)) continue;
      if (!COMMITTED.includes(code)) refused(code);
      this.resolve(sequence, lsn || "?");
    }
    return isReply ? body : null;
  }

  resolve(sequence, lsn) {
    console.log(`${lsn}\t${this.unresolved.get(sequence).line}`);
    this.unresolved.delete(sequence), (this.newsMs = Date.now());
  }
}

function* rowsOf(body, at) {
  for (; at < body.length; at += 32) {
    const [sequence, lsn] = [body.readBigUInt64LE(at), body.readBigUInt64LE(at + 8)];
    yield [sequence, { lsn, code: body.readUInt32LE(at + 20) }];
  }
}

const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
new Producer().run(process.argv[2].split(","), input);
