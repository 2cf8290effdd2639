#!/usr/bin/env python3
"""Whether peers of the benchmark answer as PROTOCOL.md says, and exclude each other.

    benches/compare/check.py [PEER]...       all with a `run` that are built, unless some are named

Each peer runs twice on a redis-server of this program's own. Needs redis-server and redis-cli, nothing else. A peer in
Rust, such as `ours`, is the binary in target/release.
"""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ["reentrant", "fair", "read", "write", "fenced"]
ANSWER_WITHIN = 90
# Keys that a lock may leave behind: a fence's counter, and what expires by itself.
LEFTOVERS = ("token", "latch")
# A release may hand the lock over to another task of the client: the name is not free in between.
HANDS_OVER = {"ours"}


def eventually(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Server:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--maxclients", "20000"]
        command += ["--notify-keyspace-events", "KA", "--client-output-buffer-limit", "pubsub 0 0 0"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}"
        eventually("the server answers", lambda: "PONG" in self.cli("ping", check=False))

    def cli(self, *words, check=True):
        command = ["redis-cli", "-p", self.port, *words]
        return subprocess.run(command, check=check, text=True, capture_output=True).stdout

    def keys(self):
        keys = self.cli("keys", "*").split()
        return [key for key in keys if not any(part in key for part in LEFTOVERS)]

    def connections(self):
        return len(self.cli("client", "list").splitlines())


class Events:
    """What happens to the keys that end so, from here until `end`."""

    def __init__(self, server, ending):
        self.server = server
        command = ["redis-cli", "-p", server.port, "--csv", "psubscribe", f"__keyspace@0__:*{ending}", "check:end"]
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
        while not self.process.stdout.readline().startswith('"psubscribe","check:end"'):
            pass

    def end(self):
        self.server.cli("publish", "check:end", "end")
        events = []
        for line in self.process.stdout:
            *_, channel, event = line.strip().replace('"', "").split(",")
            if channel == "check:end":
                break
            if not any(part in channel for part in LEFTOVERS):
                events.append(event)
        self.process.terminate()
        self.process.wait()
        return events


class Peer:
    def __init__(self, name, url):
        self.name = name
        program = HERE / name / "run"
        if not program.exists():
            program = HERE / f"../../target/release/bench-{name}"
        self.process = subprocess.Popen(
            [program, url], text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        assert self.line() == "ready"

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, within=ANSWER_WITHIN):
        line = self.lines.get(timeout=within)
        assert line is not None, f"{self.process.args[0]} has ended"
        return line

    def send(self, words):
        self.process.stdin.write(words + "\n")

    def answer(self):
        return json.loads(self.line())

    def silent(self, seconds):
        try:
            raise AssertionError(f"answered too early: {self.line(seconds)}")
        except queue.Empty:
            return True

    def ask(self, words):
        self.send(words)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0, "the end of its input is no failure"


def supported(answer):
    """None if the peer says that it has no means for it."""
    if isinstance(answer, dict) and "unsupported" in answer:
        assert isinstance(answer["unsupported"], str) and answer["unsupported"]
        return None
    assert not (isinstance(answer, dict) and "error" in answer), answer
    return answer


def check_round(peer, words):
    """Asks for a round, for longer ones if too little happens on a busy machine."""
    for seconds in (1, 4, 16):
        answer = peer.ask(f"{words} {seconds} 1")
        if "error" not in answer:
            break
    if not supported(answer):
        return None
    assert answer.keys() == {"count", "all", "seconds", "p50_us", "p99_us"}, answer
    assert isinstance(answer["count"], int) and isinstance(answer["all"], int), answer
    assert 0 < answer["count"] <= answer["all"] and answer["seconds"] == seconds, answer
    assert 0 < answer["p50_us"] <= answer["p99_us"] < 60e6, answer
    return answer


def check_micros(answer):
    assert isinstance(answer, float) and 0 < answer < 60e6, answer


def check_when(when, before, after):
    # A program's clock may be read a little coarser than ours.
    assert isinstance(when, int) and before - 2_000_000 <= when <= after + 2_000_000, (before, when, after)


def rounds(server, first, _second):
    """pair, mixed, start"""
    notes = []
    for kind in KINDS:
        answer = check_round(first, f"pair {kind} 4")
        assert answer or kind != "reentrant", "every peer has plain locks"
        if answer:
            notes.append(f"{kind} {answer['p50_us']:.0f} us")
    assert check_round(first, "pair reentrant 1000")
    check_round(first, "mixed 16 4")
    check_micros(first.ask("start"))
    return ", ".join(notes)


def errors(server, first, _second):
    """what makes no sense is an error, and no more than that"""
    for words in ["no-such-command", "pair", "pair reentrant x 1 1", "hold", "free"]:
        answer = first.ask(words)
        assert isinstance(answer["error"], str) and answer["error"], (words, answer)


def handoff(server, first, second):
    """hold, wait, free, times"""
    waiters = []
    for kind in KINDS:
        name, before = f"check:line:{kind}", time.time_ns()
        if not supported(first.ask(f"hold {kind} {name}")):
            continue
        for peer in (first, second):
            assert peer.ask(f"wait {kind} {name} 3") is True
        second.send("times")
        # A holder that reads keeps no reader out.
        assert kind == "read" or second.silent(0.5)
        freed = first.ask("free")
        check_when(freed, before, time.time_ns())
        times = first.ask("times") + second.answer()
        assert len(times) == 6
        for when in times:
            check_when(when, before if kind == "read" else freed, time.time_ns())
        waiters.append(kind)
    return ", ".join(waiters)


def exclusion(server, first, second):
    """contend: two processes, and the server's word for every turn"""
    name = "check:contended"
    assert first.ask(f"hold reentrant {name}") is True
    second.send(f"contend {name} 4 0.2 0")
    assert second.silent(0.7)
    first.ask("free")
    second.answer()
    events = Events(server, name)
    for peer in (first, second):
        peer.send(f"contend {name} 4 2 0.2")
    answers = [supported(peer.answer()) for peer in (first, second)]
    events = events.end()
    assert "expired" not in events, "a lease ran out"
    released = events.count("del")
    turns = sum(answer["all"] for answer in answers)
    hands_over = first.name in HANDS_OVER and released < turns
    assert released == turns or hands_over, f"{turns} turns, of which {released} ended with a release"
    assert check_round(first, f"contend {name} 64")
    return f"{turns} turns, {released} releases, by process {[answer['all'] for answer in answers]}"


def check_turns(answer, seconds):
    assert answer.keys() == {"count", "all", "seconds", "longest_wait_us", "wait_p99_us"}, answer
    assert isinstance(answer["count"], int) and isinstance(answer["all"], int), answer
    assert 0 <= answer["count"] <= answer["all"] and answer["seconds"] == seconds, answer
    assert 0 <= answer["wait_p99_us"] <= answer["longest_wait_us"] < 60e6, answer
    return answer


def turns(server, first, second):
    """turns: kinds, clients, pauses, and waits without an end"""
    answer = first.ask("turns reentrant check:turns 4 1 0 1 0.5")
    if "no such command" in answer.get("error", "") or supported(answer) is None:
        return "unsupported"
    assert check_turns(answer, 1)["count"] > 0, answer
    for kind in KINDS + ["multi"]:
        names = "check:turns:a,check:turns:b" if kind == "multi" else f"check:turns:{kind}"
        answer = check_turns(first.ask(f"turns {kind} {names} 2x2 5-10 0 1 0.5"), 1)
        # Four readers at a time, or one owner of another kind, for 5 ms at least.
        most = 4 * 200 if kind == "read" else 200
        assert 0 < answer["count"] <= most + 4, (kind, answer)
        assert kind == "read" or answer["longest_wait_us"] >= 5e3, (kind, answer)
    answer = check_turns(first.ask("turns reentrant check:turns 1 1 50 1 0"), 1)
    assert 0 < answer["count"] <= 20, f"a pause of 50 ms behind each turn: {answer}"

    name = "check:turns:held"
    assert first.ask(f"hold reentrant {name}") is True
    second.send(f"turns reentrant {name} 2 0 0 1 0.5")
    assert second.silent(2)
    first.ask("free")
    starved = check_turns(second.answer(), 1)
    assert starved["count"] == 0 and starved["all"] == 2, starved
    assert 1.4e6 < starved["longest_wait_us"] < 1.6e6, f"from its beginning to the end of the window: {starved}"

    for peer in (first, second):
        peer.send(f"turns reentrant {name} 2x2 5 0 2 0.5")
    counts = [check_turns(peer.answer(), 2)["count"] for peer in (first, second)]
    # The two windows do not begin at exactly the same time.
    assert 0 < sum(counts) <= 2 * 200 * 1.1, f"{counts} turns of 5 ms in 2 s"
    return f"{sum(counts)} turns of 5 ms in 2 s, by process {counts}"


def many(server, first, second):
    """hold-many, wait-many, give-up, free-many"""
    count = 300
    assert first.ask(f"hold-many check:many {count}") is True
    assert len(server.keys()) == count, server.keys()
    assert second.ask(f"wait-many check:many 1000 {count}") is True
    assert second.ask("give-up") is True
    held = server.connections()
    assert second.ask("wait-many check:many 500 1") is True
    assert second.ask("give-up") is True
    assert len(server.keys()) == count and server.connections() <= held + 100
    events = Events(server, "check:many:[0-9]*")
    assert first.ask("free-many") is True
    time.sleep(1)  # who has not given up takes one within the pause between two tries
    assert events.end().count("del") == count, "somebody still waited"
    assert supported(second.ask("hold reentrant check:many:0")) is True
    second.ask("free")


def multi(server, first, second):
    """take, release"""
    names = " ".join(f"check:multi:{i}" for i in range(100))
    took = supported(first.ask(f"take {names}"))
    if took is None:
        return "unsupported"
    check_micros(took)
    assert len(server.keys()) == 100, server.keys()
    assert supported(second.ask("wait reentrant check:multi:50 1")) is True
    second.send("times")
    assert second.silent(0.5), "one of the names was free"
    check_micros(first.ask("release"))
    assert len(second.answer()) == 1
    return f"{took:.0f} us"


def check(name):
    server, peers = Server(), []
    try:
        before = server.connections()
        for _ in range(2):
            peers.append(Peer(name, server.url))
        for part in (rounds, errors, handoff, exclusion, turns, many, multi):
            print(f"{name}: {part.__doc__}", end=" ", flush=True)
            notes = part(server, *peers)
            eventually(f"all names are free: {server.keys()}", lambda: not server.keys())
            print(f"... {notes or 'ok'}", flush=True)
        assert peers[1].ask("wait-many check:end 10 1") is True  # an end in the midst of it is an end
        for peer in peers:
            peer.end()
        eventually("its connections are closed", lambda: server.connections() <= before)
    finally:
        for peer in peers:
            peer.process.kill()
        server.process.terminate()
        server.process.wait()
    print(f"{name}: passed")


def main():
    every = sorted(run.parent.name for run in HERE.glob("*/run") if os.access(run, os.X_OK))
    for name in sys.argv[1:] or every:
        check(name)


if __name__ == "__main__":
    main()
