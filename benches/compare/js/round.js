"use strict";

/** Pairs of one time: see benches/compare/PROTOCOL.md. Times are in milliseconds with fractions. */
class Round {
  constructor(seconds, warmUp) {
    this.seconds = seconds;
    this.begin = performance.now() + warmUp * 1e3;
    this.end = this.begin + seconds * 1e3;
    this.all = 0;
    this.took = [];
  }

  async repeat(pair) {
    for (let from = performance.now(); from < this.end; ) {
      await pair();
      const to = performance.now();
      this.all++;
      if (from >= this.begin && to <= this.end) this.took.push(to - from);
      from = to;
    }
  }

  result() {
    const took = Float64Array.from(this.took).sort();
    if (took.length === 0) throw new Error("no pair began and ended within the measured time");
    const micros = (quantile) => took[Math.floor(took.length * quantile)] * 1e3;
    return { count: took.length, all: this.all, seconds: this.seconds, p50_us: micros(0.5), p99_us: micros(0.99) };
  }
}

module.exports = { Round };
