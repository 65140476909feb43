/* Texts that share their beginning, in one cache: each token reads the beginning and its own branch, and nothing of the other branches.
   Chapter 15 calls this tree attention. Not here: which tokens are worth a branch (beam_search.js, tree_decoder.js). */
(Live => {
  "use strict";

  /* A node is {token, parent}, its parent another node or null. Once it is read, `place` says where it stands in the cache, and `depth`
     how many nodes are above it, and `state` what the output layer read there. */
  Live.Branches = class {
    constructor(session, text) {
      session.rows(text, 0);
      this.session = session;
      this.from = this.end = text.length;
    }

    /* The nodes above a node, itself the last. */
    static path(node) { return node ? [...Live.Branches.path(node.parent), node] : []; }

    /* How many more nodes there is room for. */
    get room() { return this.session.context - this.end; }

    /* The logits after each of up to eight nodes, parents before children, from one call. */
    read(nodes) {
      for (const node of nodes) {
        node.place = this.end++;
        node.depth = node.parent ? node.parent.depth + 1 : 0;
      }
      const hidden = nodes.map(node => {
        const seen = new Set(Live.Branches.path(node).map(({ place }) => place));
        return Array.from({ length: node.place - this.from }, (_, i) => this.from + i).filter(place => !seen.has(place));
      });
      const { model, cache } = this.session;
      const rows = model.forward(nodes.map(({ token }) => token), cache, nodes[0].place, nodes.map(({ depth }) => this.from + depth), hidden);
      nodes.forEach((node, t) => { node.state = model.states[t]; });
      return rows;
    }

    /* The session's text goes on with the nodes of this path; all other branches are forgotten. */
    keep(path) {
      const { model: { numbers: F, context, config: { hidden_size: H } }, cache, tokens, states } = this.session;
      for (const { token, place, state } of path) { /* a node stands at or after its place in the text, so nothing is overwritten too early */
        const to = tokens.push(token) - 1;
        states.push(state);
        for (const { k, v } of cache) {
          F.copyWithin(k + to * H, k + place * H, k + (place + 1) * H);
          for (let j = 0; j < H; j++) { F[v + j * context + to] = F[v + j * context + place]; }
        }
      }
    }
  };
})(globalThis.Live ??= {});
