// The Mutex of redis-semaphore on ioredis as a peer of the benchmark. Its defaults, but for acquireTimeout, which would
// end a wait after 10 s: without end. A mutex prolongs itself while it is held.
"use strict";

const Redis = require("ioredis");
const { Mutex } = require("redis-semaphore");
const { serve } = require("../js/peer.js");

const WITHOUT_END = { acquireTimeout: Infinity };

async function acquire(redis, name, abortSignal) {
  const mutex = new Mutex(redis, name, WITHOUT_END);
  await mutex.acquire(abortSignal);
  return mutex;
}

serve({
  name: "redis-semaphore",

  connect(url) {
    const redis = new Redis(url);
    redis.on("error", console.error);
    return redis;
  },

  close: (redis) => redis.disconnect(),
  acquire: (redis, name) => acquire(redis, name),
  release: (mutex) => mutex.release(),

  // A signal for each wait: what leaves one that thousands listen to has to be looked for among them.
  crowd(redis) {
    const aborts = [];
    return {
      acquire(name) {
        const abort = new AbortController();
        aborts.push(abort);
        return acquire(redis, name, abort.signal);
      },
      giveUp: () => aborts.forEach((abort) => abort.abort()),
    };
  },
});
