"""redis-py's asyncio Lock as a peer of the benchmark: answers the commands of benches/compare/PROTOCOL.md.

The defaults of redis-py with hiredis, but for the connections of more than 100 tasks: the usual pool fails when more are
wanted at once, so these have redis-py's BlockingConnectionPool of as many, and no limit to how long they wait for one.
By default the lock has no time to live: what a process that dies has held stays locked.

A task is an asyncio task. Its Lock is its own: a Lock keeps the token by which it is held.
"""

import asyncio
import json
import os
import sys
import time
import traceback

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.lock import Lock

CONNECTIONS = 100  # of the usual pool
TURNS_WITHIN = 60
# A peer whose input has ended has no one to answer: a command that hangs then must not keep it.
LAST_ANSWER_WITHIN = 60


class Unsupported(Exception):
    pass


def kind(word):
    if word != "reentrant":
        raise Unsupported("there is one kind of lock, a plain one")
    return word


async def acquire(client, name):
    lock = client.lock(name)
    await lock.acquire()
    return lock


async def turn_ends(lock: Lock):
    """When, by the clock that all processes share."""
    when = time.time_ns()
    await lock.release()
    return when


async def turn(client, name):
    return await turn_ends(await acquire(client, name))


class Round:
    def __init__(self, seconds, warm_up):
        self.seconds = seconds
        self.begin = time.perf_counter_ns() + int(warm_up * 1e9)
        self.end = self.begin + int(seconds * 1e9)
        self.all = 0
        self.took = []

    async def repeat(self, lock: Lock):
        start = time.perf_counter_ns()
        while start < self.end:
            await lock.acquire()
            await lock.release()
            stop = time.perf_counter_ns()
            self.all += 1
            if start >= self.begin and stop <= self.end:
                self.took.append(stop - start)
            start = stop

    def result(self):
        took = sorted(self.took)
        if not took:
            raise RuntimeError("no pair began and ended within the measured time")
        p50, p99 = (took[len(took) * percent // 100] / 1e3 for percent in (50, 99))
        return {"count": len(took), "all": self.all, "seconds": self.seconds, "p50_us": p50, "p99_us": p99}


class Peer:
    def __init__(self, url):
        self.url = url
        self.client = Redis.from_url(url)
        pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None)
        self.crowded = Redis.from_pool(pool)
        self.held = None
        self.turns = []
        self.many = []
        self.waiting = set()

    def client_for(self, tasks):
        return self.client if tasks <= CONNECTIONS else self.crowded

    async def pair(self, _kind, tasks, seconds, warm_up):
        names = [f"bench:redis-py:{task}" for task in range(tasks)]
        return await self.round(names, seconds, warm_up)

    async def contend(self, name, tasks, seconds, warm_up):
        return await self.round([name] * tasks, seconds, warm_up)

    async def round(self, names, seconds, warm_up):
        round = Round(seconds, warm_up)
        client = self.client_for(len(names))
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(round.repeat(client.lock(name)))
        return round.result()

    async def mixed(self, *_):
        raise Unsupported("there is no read-write lock")

    async def hold(self, _kind, name):
        self.held = await acquire(self.client, name)
        return True

    async def wait(self, _kind, name, tasks):
        client = self.client_for(tasks)
        self.turns += [asyncio.create_task(turn(client, name)) for _ in range(tasks)]
        return True

    async def free(self):
        if self.held is None:
            raise RuntimeError("nothing is held")
        held, self.held = self.held, None
        return await turn_ends(held)

    async def times(self):
        turns, self.turns = self.turns, []
        return await asyncio.wait_for(asyncio.gather(*turns), TURNS_WITHIN)

    async def hold_many(self, prefix, count):
        for i in range(count):
            self.many.append(await acquire(self.client, f"{prefix}:{i}"))
        return True

    async def free_many(self):
        for lock in self.many:
            await lock.release()
        self.many = []
        return True

    async def wait_many(self, prefix, count, names):
        # The holder does not let go of it while they wait; if it does, it is given back.
        waits = (turn(self.crowded, f"{prefix}:{i % names}") for i in range(count))
        self.waiting |= {asyncio.create_task(wait) for wait in waits}
        return True

    async def give_up(self):
        # Again and again: one that meets the end of a command can get lost there.
        while self.waiting:
            for task in self.waiting:
                task.cancel()
            _, self.waiting = await asyncio.wait(self.waiting, timeout=1)
        return True

    async def take(self, *_):
        raise Unsupported("there is no lock of several names")

    async def release(self):
        raise Unsupported("there is no lock of several names")

    async def start(self):
        start = time.perf_counter_ns()
        async with Redis.from_url(self.url) as client:
            lock = await acquire(client, "bench:redis-py:start")
            took = (time.perf_counter_ns() - start) / 1e3
            await lock.release()
        return took


# How the words after a command are read; None for any that follow.
COMMANDS = {
    "pair": (kind, int, float, float),
    "contend": (str, int, float, float),
    "mixed": (int, int, float, float),
    "hold": (kind, str),
    "wait": (kind, str, int),
    "free": (),
    "times": (),
    "hold-many": (str, int),
    "free-many": (),
    "wait-many": (str, int, int),
    "give-up": (),
    "take": None,
    "release": (),
    "start": (),
}


async def answer(peer, words):
    command, *rest = words
    try:
        if command not in COMMANDS:
            raise ValueError(f"no such command: {command}")
        readers = COMMANDS[command] if COMMANDS[command] is not None else [str] * len(rest)
        if len(readers) != len(rest):
            raise ValueError(f"{len(rest)} arguments instead of {len(readers)}")
        arguments = [reader(word) for reader, word in zip(readers, rest)]
        return await getattr(peer, command.replace("-", "_"))(*arguments)
    except Unsupported as lacking:
        return {"unsupported": str(lacking)}
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        traceback.print_exception(error)
        return {"error": str(error) or repr(error)}


async def read_lines(lines):
    """Reads on while a command runs, so that the end of the input is noticed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)  # a line may hold a thousand names
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        lines.put_nowait(line.decode())
    loop.call_later(LAST_ANSWER_WITHIN, os._exit, 1)
    lines.put_nowait(None)


async def main():
    if len(sys.argv) != 2:
        sys.exit("usage: bench.py <redis url>")
    peer = Peer(sys.argv[1])
    lines = asyncio.Queue()
    reading = asyncio.create_task(read_lines(lines))
    print("ready", flush=True)
    while (line := await lines.get()) is not None:
        if words := line.split():
            print(json.dumps(await answer(peer, words)), flush=True)
    await reading
    # Whatever still waits ends with the process, and its connections with it.
    os._exit(0)


asyncio.run(main())
