// What the two peers on Node.js share: the commands of benches/compare/PROTOCOL.md. A task is a chain of promises.
"use strict";

const readline = require("node:readline");
const { Round } = require("./round.js");

// A peer whose input has ended has nobody to answer: a command that hangs then must not keep it.
const LAST_ANSWER_WITHIN_MS = 60_000;
const TURNS_WITHIN_MS = 60_000;

class Unsupported extends Error {}

// What a command expects: k is a kind of lock, t a text, n a number, s a time in seconds, + is one text or more.
const COMMANDS = {
  pair: "knss",
  contend: "tnss",
  mixed: "nnss",
  hold: "kt",
  wait: "ktn",
  free: "",
  times: "",
  "hold-many": "tn",
  "free-many": "",
  "wait-many": "tnn",
  "give-up": "",
  take: "+",
  release: "",
  start: "",
};

function read(expected, words) {
  if (expected === "+" && words.length > 0) return words;
  if (words.length !== expected.length) throw new Error(`${words.length} arguments instead of ${expected.length}`);
  return words.map((word, at) => {
    if (expected[at] === "k" && word !== "reentrant") throw new Unsupported("there is one kind of lock, a plain one");
    if (!"ns".includes(expected[at])) return word;
    const number = Number(word);
    if (!(number >= 0)) throw new Error(`no number: ${word}`);
    return number;
  });
}

/**
 * What a peer has to bring along:
 *
 *   name                            of the peer, in the names of its locks
 *   connect(url), close(client)
 *   acquire(client, name, forLong)  a lock; one that is held for long must not expire meanwhile
 *   release(lock)
 *   take(client, names)             one lock of these names, for those that have such
 *   crowd(client)                   waits that can be ended: acquire(name), giveUp()
 */
class Peer {
  constructor(means, url) {
    this.means = means;
    this.url = url;
    this.client = means.connect(url);
    this.turns = [];
    this.many = [];
    this.crowd = null;
  }

  lock(name, forLong = false) {
    return this.means.acquire(this.client, name, forLong);
  }

  unlock(held) {
    return this.means.release(held);
  }

  pair(_kind, tasks, seconds, warmUp) {
    return this.round(tasks, seconds, warmUp, (task) => `bench:${this.means.name}:${task}`);
  }

  contend(name, tasks, seconds, warmUp) {
    return this.round(tasks, seconds, warmUp, () => name);
  }

  async round(tasks, seconds, warmUp, nameOf) {
    const round = new Round(seconds, warmUp);
    const running = [];
    for (let task = 0; task < tasks; task++) {
      const name = nameOf(task);
      running.push(round.repeat(async () => this.unlock(await this.lock(name))));
    }
    await Promise.all(running);
    return round.result();
  }

  mixed() {
    throw new Unsupported("there is no read-write lock");
  }

  async hold(_kind, name) {
    this.held = await this.lock(name, true);
    setClock();
    return true;
  }

  async wait(_kind, name, tasks) {
    setClock();
    for (let task = 0; task < tasks; task++) {
      const turn = this.lock(name).then((held) => this.turnEnds(held));
      turn.catch(() => {}); // `times` says it
      this.turns.push(turn);
    }
    return true;
  }

  async free() {
    if (!this.held) throw new Error("nothing is held");
    const held = this.held;
    this.held = undefined;
    return this.turnEnds(held);
  }

  async turnEnds(held) {
    const when = now();
    await this.unlock(held);
    return when;
  }

  async times() {
    const turns = this.turns;
    this.turns = [];
    let timer;
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("tasks did not get the lock in time")), TURNS_WITHIN_MS);
    });
    try {
      return await Promise.race([Promise.all(turns), limit]);
    } finally {
      clearTimeout(timer);
    }
  }

  async ["hold-many"](prefix, count) {
    for (let i = 0; i < count; i++) this.many.push(await this.lock(`${prefix}:${i}`, true));
    return true;
  }

  async ["free-many"]() {
    for (const held of this.many) await this.unlock(held);
    this.many = [];
    return true;
  }

  async ["wait-many"](prefix, count, names) {
    this.crowd ??= { means: this.means.crowd(this.client), waiting: [] };
    for (let i = 0; i < count; i++) {
      const wait = this.crowd.means.acquire(`${prefix}:${i % names}`);
      // Nobody lets go of it while they wait; if somebody does, it is given back.
      this.crowd.waiting.push(wait.then((held) => this.unlock(held)).catch(() => {}));
    }
    return true;
  }

  async ["give-up"]() {
    if (this.crowd) {
      const { means, waiting } = this.crowd;
      this.crowd = null;
      means.giveUp();
      await Promise.all(waiting);
    }
    return true;
  }

  async take(...names) {
    if (!this.means.take) throw new Unsupported("there is no lock of several names");
    const from = performance.now();
    this.taken = await this.means.take(this.client, names);
    return micros(performance.now() - from);
  }

  async release() {
    if (!this.means.take) throw new Unsupported("there is no lock of several names");
    if (!this.taken) throw new Error("nothing is taken");
    const from = performance.now();
    await this.unlock(this.taken);
    this.taken = undefined;
    return micros(performance.now() - from);
  }

  async start() {
    const from = performance.now();
    const client = this.means.connect(this.url);
    try {
      const held = await this.means.acquire(client, `bench:${this.means.name}:start`, false);
      const took = micros(performance.now() - from);
      await this.unlock(held);
      return took;
    } finally {
      this.means.close(client);
    }
  }

  async answer(words) {
    const [command, ...rest] = words;
    try {
      if (!Object.hasOwn(COMMANDS, command)) throw new Error(`no such command: ${command}`);
      return await this[command](...read(COMMANDS[command], rest));
    } catch (error) {
      if (error instanceof Unsupported) return { unsupported: error.message };
      console.error(error);
      return { error: String(error) };
    }
  }
}

// Date.now() tells milliseconds and process.hrtime() is finer but begins anywhere: where the first ticks over, they meet.
let clockBegan = 0n;

function setClock() {
  const before = Date.now();
  let tick;
  do tick = Date.now();
  while (tick === before);
  clockBegan = BigInt(tick) * 1_000_000n - process.hrtime.bigint();
}

function now() {
  return clockBegan + process.hrtime.bigint();
}

function micros(milliseconds) {
  return milliseconds * 1e3;
}

/** An answer as a line; JSON.stringify knows no integers as large as a time in nanoseconds. */
function line(answer) {
  if (typeof answer === "bigint") return String(answer);
  return Array.isArray(answer) ? `[${answer.map(line).join(",")}]` : JSON.stringify(answer);
}

/** The whole program of a peer. */
async function serve(means) {
  if (process.argv.length !== 3) {
    console.error("usage: bench.js <redis url>");
    process.exit(2);
  }
  const peer = new Peer(means, process.argv[2]);
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("close", () => setTimeout(() => process.exit(1), LAST_ANSWER_WITHIN_MS).unref());
  console.log("ready");
  for await (const words of lines) {
    if (words.trim()) console.log(line(await peer.answer(words.trim().split(/\s+/))));
  }
  process.exit(0);
}

module.exports = { serve };
