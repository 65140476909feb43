/* Medusa, as tutorlib's `medusa` does it with its exact rule: heads on the target guess a small tree of tokens, and one call checks it. */
(Live => {
  "use strict";

  /* The logits of one head, from the target's hidden state: W (h + SiLU(A h + b)). */
  const guess = (model, state, head) => {
    const { numbers: F, weights, x: h, y: changed, logits, config: { hidden_size: H, vocab_size: V } } = model;
    F.set(state, h);
    model.products(changed, weights[`${head}.0.linear.weight`], h, 1, H, H);
    for (let j = 0, bias = weights[`${head}.0.linear.bias`]; j < H; j++) {
      const z = F[changed + j] + F[bias + j];
      F[changed + j] = F[h + j] + z / (1 + Math.exp(-z));
    }
    model.products(logits, weights[`${head}.1.weight`], changed, 1, V, H);
    return F.slice(logits, logits + V);
  };

  /* The tree of guesses, as nodes after `root`. choices: paths of ranks, one rank for each head, parents before children. */
  const guessedTree = (model, state, root, choices) => {
    const nodes = new Map([["", root]]), ranked = [];
    for (const path of choices) {
      const head = path.length - 1, order = ranked[head] ??= Live.byLikelihood(guess(model, state, head));
      nodes.set(path.join(), { token: order[path.at(-1)], parent: nodes.get(path.slice(0, -1).join()) });
    }
    return [...nodes.values()].slice(1);
  };

  /* Each round yields {tokens, nodes, path}: the new tokens, the tree of guesses, and those of its nodes that the target drew itself.
     The last of `tokens` is the target's own. `text` is a list of tokens, and grows. */
  Live.medusa = function* (session, text, { choices, rng, warp }) {
    const { model } = session;
    let state = null; /* the target's, from which the last token was drawn */
    while (text.length < session.context) {
      const branches = new Live.Branches(session, text.slice(0, -1)), root = { token: text.at(-1), parent: null };
      const nodes = state ? guessedTree(model, state, root, choices.slice(0, branches.room - 2)) : [];
      const all = [root, ...nodes], rows = branches.read(all), path = [root], tokens = [];
      for (let node = root; node;) {
        state = model.states[all.indexOf(node)];
        const token = rng.choose(Live.probabilities(rows[all.indexOf(node)], warp));
        tokens.push(token);
        node = nodes.find(one => one.parent === path.at(-1) && one.token === token);
        if (node) { path.push(node); }
      }
      branches.keep(path);
      text.push(...tokens);
      yield { tokens, nodes, path: path.slice(1) };
    }
  };
})(globalThis.Live ??= {});
