// node-redlock (the package redlock on ioredis) as a peer of the benchmark. Its defaults, but for
//   - retryCount, which would end a wait after 10 attempts: without end;
//   - the time to live, which has no default and which it does not prolong by itself: Redisson's 30 s, and more for locks
//     that are held for long.
"use strict";

const Redis = require("ioredis");
const Redlock = require("redlock");
const { serve } = require("../js/peer.js");

const TTL_MS = 30_000;
const LONG_TTL_MS = 600_000;
const WITHOUT_END = { retryCount: -1 };

serve({
  name: "node-redlock",

  connect(url) {
    const redis = new Redis(url);
    redis.on("error", console.error);
    return { redis, redlock: new Redlock([redis], WITHOUT_END) };
  },

  close: ({ redis }) => redis.disconnect(),
  acquire: ({ redlock }, name, forLong) => redlock.lock(name, forLong ? LONG_TTL_MS : TTL_MS),
  release: (lock) => lock.unlock(),
  take: ({ redlock }, names) => redlock.lock(names, TTL_MS),

  // A wait cannot be ended from outside. But each attempt looks anew how many there may be.
  crowd({ redis }) {
    const redlock = new Redlock([redis], WITHOUT_END);
    return {
      acquire: (name) => redlock.lock(name, TTL_MS),
      giveUp() {
        redlock.retryCount = 0;
      },
    };
  },
});
