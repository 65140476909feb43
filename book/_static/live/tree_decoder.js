/* Decoding with a tree of guesses that one call of the target checks by tutorlib's exact rule. Not here: who guesses. */
(Live => {
  "use strict";

  /* guess(root, room, state): at most `room` nodes below the root, which is the text's last token, parents before children; `state` is the
     one from which this token was drawn, and null before the first call.
     Each round yields {tokens, nodes, path}: the new tokens, the tree of guesses, and those of its nodes that the target drew itself. The
     last of `tokens` is the target's own. `text` is a list of tokens, and grows. */
  Live.withTree = function* (session, text, { guess, rng, warp }) {
    let state = null;
    while (text.length < session.context) {
      const branches = new Live.Branches(session, text.slice(0, -1)), root = { token: text.at(-1), parent: null };
      const nodes = guess(root, session.context - text.length - 1, state);
      const all = [root, ...nodes], rows = branches.read(all), path = [root], tokens = [];
      for (let node = root; node;) {
        ({ state } = node);
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
