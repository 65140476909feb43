/* Medusa, as tutorlib's `medusa` does it with its exact rule: heads on the target guess a small tree of tokens. */
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

  /* choices: paths of ranks, one rank for each head, parents before children. */
  Live.medusa = (session, text, { choices, rng, warp }) => {
    const guessed = (root, room, state) => {
      const nodes = new Map([["", root]]), ranked = [];
      for (const path of state ? choices.slice(0, room) : []) {
        const head = path.length - 1, order = ranked[head] ??= Live.byLikelihood(guess(session.model, state, head));
        nodes.set(path.join(), { token: order[path.at(-1)], parent: nodes.get(path.slice(0, -1).join()) });
      }
      return [...nodes.values()].slice(1);
    };
    return Live.withTree(session, text, { guess: guessed, rng, warp });
  };
})(globalThis.Live ??= {});
