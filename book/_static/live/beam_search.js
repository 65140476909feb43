/* Beam search, as tutorlib's `beam_search` does it: the same texts and scores. All beams are branches of one text, read in one call. */
(Live => {
  "use strict";

  const logProbabilities = Live.logProbabilities = logits => {
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const total = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    return Float64Array.from(logits, logit => logit - total);
  };

  /* All continuations of some hypotheses by one token, best first; of equals, the earlier hypothesis and the lower id come first. */
  const continuations = (running, rows) => running.flatMap(({ node, tokens, logProb }, at) =>
    Array.from(logProbabilities(rows[at]), (more, token) => ({ node: { token, parent: node }, tokens, token, logProb: logProb + more })))
    .sort((a, b) => b.logProb - a.logProb)
    .map(({ token, tokens, ...rest }) => ({ ...rest, tokens: [...tokens, token] }));

  /* A hypothesis is {node, tokens, logProb}: its last node, its new tokens, and the sum of their log-probabilities. Yields after each
     call {running, finished, done}: the hypotheses that run on, and those that have ended, both best first. A finished one has a `score`,
     logProb / tokens ** lengthPenalty. */
  Live.beamSearch = function* (session, text, { beams, longest, stop, lengthPenalty = 1 }) {
    const branches = new Live.Branches(session, text.slice(0, -1));
    const score = (logProb, length) => logProb / length ** lengthPenalty;
    let running = [{ node: { token: text.at(-1), parent: null }, tokens: [], logProb: 0 }], finished = [];
    for (let length = 1, done = false; !done; length++) {
      const best = continuations(running, branches.read(running.map(({ node }) => node))), last = length === longest;
      const ends = ({ tokens }) => tokens.at(-1) === stop;
      const ended = best.slice(0, beams).filter(hypothesis => last || ends(hypothesis));
      finished.push(...ended.map(hypothesis => ({ ...hypothesis, score: score(hypothesis.logProb, length) })));
      finished = finished.sort((a, b) => b.score - a.score).slice(0, beams);
      running = last ? [] : best.filter(hypothesis => !ends(hypothesis)).slice(0, beams);
      /* No running hypothesis is expected to beat the worst finished one. */
      done = last || (finished.length === beams && score(running[0].logProb, length) <= finished.at(-1).score);
      yield { running, finished, done };
    }
  };
})(globalThis.Live ??= {});
