/* EAGLE-1, as tutorlib's `eagle` does it with `chain_draft`: a network of one layer guesses a chain of tokens from the target's features.
   Its layer has no first norm, and it shares the target's embeddings and output layer. */
(Live => {
  "use strict";
  const MOST = 8; /* tokens at a time, as in model.js */

  class Network {
    constructor(model) {
      this.model = model;
      this.layer = model.layer("layers.0");
      this.length = 0; /* how many pairs of a token and a feature it has read */
    }

    /* Read at most eight tokens, each with the feature of the token before it; return the features that it expects next. */
    read(tokens, features, place) {
      const { model } = this, { numbers: F, weights, x, gate: joined, embeddings, config: { hidden_size: H } } = model, T = tokens.length;
      tokens.forEach((token, t) => {
        F.copyWithin(joined + 2 * t * H, embeddings + token * H, embeddings + (token + 1) * H);
        F.set(features[t], joined + (2 * t + 1) * H);
      });
      model.products(x, weights["fc.weight"], joined, T, H, 2 * H);
      for (let t = 0; t < T; t++) { for (let j = 0; j < H; j++) { F[x + t * H + j] += F[weights["fc.bias"] + j]; } }
      model.apply(this.layer, model.spare, T, place, tokens.map((_, t) => place + t), tokens.map(() => []));
      return model.vectors(x, T, H);
    }

    /* The token that the target's output layer finds most likely after a feature. */
    best(feature) {
      const { model } = this, { numbers: F, y, logits, embeddings, config: { hidden_size: H, vocab_size: V } } = model;
      F.set(feature, y);
      model.products(logits, embeddings, y, 1, V, H);
      return Live.byLikelihood(F.slice(logits, logits + V))[0];
    }

    /* A chain of guesses after a text; features: those of all its tokens but the last. */
    chain(text, features, root, length) {
      const nodes = [];
      let feature;
      for (; this.length < features.length; this.length += Math.min(MOST, features.length - this.length)) {
        feature = this.read(text.slice(this.length + 1, this.length + 1 + MOST), features.slice(this.length, this.length + MOST), this.length).at(-1);
      }
      while (nodes.length < length) {
        if (nodes.length) { [feature] = this.read([nodes.at(-1).token], [feature], this.length + nodes.length - 1); }
        nodes.push({ token: this.best(feature), parent: nodes.at(-1) ?? root });
      }
      return nodes;
    }
  }

  /* length: how many tokens a chain has, at most seven. */
  Live.eagle = (session, text, { length, rng, warp }) => {
    const network = new Network(session.model);
    const guess = (root, room, state) => (state ? network.chain(text, session.states, root, Math.min(length, room)) : []);
    return Live.withTree(session, text, { guess, rng, warp });
  };
})(globalThis.Live ??= {});
