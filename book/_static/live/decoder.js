/* The two methods, over anything with `rows(text, count)` and `context`: a model's session, or a table. Also what they draw with: random
   draws that can be repeated, temperature, top-p. The same rules as in tutorlib: `sample`, `speculative`, `warp` and `checking`. */
(Live => {
  "use strict";
  const ROUNDING = 1e-12; /* numbers that are equal on paper differ by less */

  /* The ids from the most likely to the least; of equals, the lower id comes first. */
  const byLikelihood = Live.byLikelihood = values => Array.from(values, (_, id) => id).sort((a, b) => values[b] - values[a] || a - b);

  const largest = values => values.reduce((a, b) => Math.max(a, b), -Infinity);

  const softmax = logits => {
    const most = largest(logits);
    const probs = Float64Array.from(logits, value => Math.exp(value - most));
    const sum = probs.reduce((a, b) => a + b, 0);
    return probs.map(value => value / sum);
  };

  /* Logits to probabilities. At temperature 0 the most likely token gets all; topP keeps the fewest most likely tokens that sum to it. */
  Live.probabilities = (logits, { temperature = 1, topP = 1 } = {}) => {
    if (temperature === 0) {
      const best = logits.indexOf(largest(logits));
      return Float64Array.from(logits, (_, id) => (id === best ? 1 : 0));
    }
    const scaled = Float64Array.from(logits, value => value / temperature);
    if (topP < 1) {
      const probs = softmax(scaled), order = byLikelihood(scaled);
      let tail = 0;
      for (const id of order.slice(1).reverse()) { /* the least likely first: small probabilities are not lost to rounding */
        tail += probs[id];
        if (tail > 1 - topP + ROUNDING) { break; }
        scaled[id] = -Infinity;
      }
    }
    return softmax(scaled);
  };

  /* The part of p that exceeds q, divided by its sum; p itself if rounding leaves nothing. */
  const residual = Live.residual = (p, q) => {
    const excess = p.map((value, id) => Math.max(value - q[id], 0)), sum = excess.reduce((a, b) => a + b, 0);
    return sum > 0 ? excess.map(value => value / sum) : p;
  };

  /* Random draws from a seed: the generator mulberry32, two numbers of 32 bits for one of 53. `last` is the number drawn last. */
  Live.Seeded = class {
    constructor(seed) { this.state = seed >>> 0; }

    bits() {
      this.state = (this.state + 0x6D2B79F5) >>> 0;
      let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return (mixed ^ (mixed >>> 14)) >>> 0;
    }

    uniform() { return this.last = ((this.bits() >>> 5) * 67108864 + (this.bits() >>> 6)) / 9007199254740992; }

    accept(probability) { return this.uniform() < probability; }

    /* The tokens lie side by side on a line from 0 to 1, the most likely first, each as wide as its probability. */
    choose(probs) {
      const order = byLikelihood(probs), drawn = this.uniform();
      let end = 0;
      return order.find(id => (end += probs[id]) > drawn) ?? order.filter(id => probs[id] > 0).at(-1);
    }
  };

  /* Draws nothing: for temperature 0. */
  Live.Greedy = class {
    last = null;
    accept(probability) { return probability >= 1; }
    choose(probs) { return probs.indexOf(largest(probs)); }
  };

  /* One token for each call of the target. `text` is a list of tokens, and grows. */
  Live.plain = function* (target, text, { rng, warp }) {
    while (text.length < target.context) {
      const [logits] = target.rows(text), p = Live.probabilities(logits, warp);
      const token = rng.choose(p);
      text.push(token);
      yield { tokens: [token], drafted: [], checks: [], added: { kind: "target", token, probs: p, logits, coin: rng.last } };
    }
  };

  /* The draft proposes up to gamma tokens, and one call of the target checks them all. Each is accepted with probability min(1, p/q).
     In place of the first rejected one, a token is drawn from the residual; if none was rejected, one is drawn from p as a bonus. */
  Live.speculative = function* (target, draft, text, { gamma, rng, warp }) {
    while (text.length < target.context) {
      const drafted = [], guesses = [];
      const most = Math.min(gamma, target.context - text.length - 1, draft.context - text.length + 1);
      while (drafted.length < most) {
        const [logits] = draft.rows([...text, ...drafted]);
        guesses.push({ q: Live.probabilities(logits, warp), logits });
        drafted.push(rng.choose(guesses.at(-1).q));
      }
      const rows = target.rows([...text, ...drafted], drafted.length + 1);
      const checks = [];
      let added;
      for (const [i, token] of drafted.entries()) {
        const { q, logits: draftLogits } = guesses[i], logits = rows[i], p = Live.probabilities(logits, warp);
        const threshold = Math.min(1, p[token] / q[token]), accepted = rng.accept(threshold);
        checks.push({ token, p, q, logits, draftLogits, threshold, accepted, coin: rng.last });
        if (!accepted) {
          const rest = residual(p, q);
          added = { kind: "resampled", token: rng.choose(rest), probs: rest, logits, coin: rng.last };
          break;
        }
      }
      if (!added) {
        const p = Live.probabilities(rows.at(-1), warp);
        added = { kind: drafted.length ? "bonus" : "target", token: rng.choose(p), probs: p, logits: rows.at(-1), coin: rng.last };
      }
      const tokens = [...drafted.slice(0, checks.filter(check => check.accepted).length), added.token];
      text.push(...tokens);
      yield { tokens, drafted, checks, added };
    }
  };
})(globalThis.Live ??= {});
