/* A part of the live page: a beam search that grows token by token, its tree, and greedy decoding beside it. */
(Live => {
  "use strict";
  const { element, mark, box, tree } = Live.draw;
  const LONGEST = 20, MOST_BEAMS = 5;
  const ROOM = LONGEST * MOST_BEAMS; /* every hypothesis that was ever kept has its place in the cache */

  const sum = value => value.toFixed(2).replace("-", "−");

  Live.beams = root => {
    const { desk } = Live;
    let search = null; /* the generators of both methods */
    let now = null; /* what the search yielded last */
    let nodes = [], greedy = [], greedySum = 0, length = 0, version = 0;

    const prompt = Live.promptBox(ROOM);
    const controls = Live.controls({ label: "Next token", step: say => grow(say), restart: () => restart() });
    const stage = element("div", {}), texts = element("div", {});
    root.replaceChildren(...prompt.elements,
      element("div", { class: "live-settings" }, desk.slider("beams", "Beams", { min: 1, max: MOST_BEAMS, step: 1 }, String)),
      controls.buttons, controls.status, stage, texts);

    const grow = async say => {
      const { tokens, problem } = desk.read(ROOM), began = version;
      if (problem) { say(problem, true); return false; }
      const models = await desk.ready(say);
      if (!models || now?.done) { return false; }
      const [one, other] = models.sessions.target;
      if (!search) { for (const session of [one, other]) { await desk.warm(session, tokens); } }
      if (began !== version) { return true; } /* the reader has changed something in the meantime */
      const stop = desk.tokenizer.end;
      search ??= { beams: Live.beamSearch(one, tokens, { beams: desk.beams, longest: LONGEST, stop }),
        greedy: Live.plain(other, [...tokens], { rng: new Live.Greedy(), warp: { temperature: 0 } }) };
      now = search.beams.next().value;
      if (greedy.at(-1) !== stop) {
        const { added: { token, logits } } = search.greedy.next().value;
        greedy.push(token);
        greedySum += Live.logProbabilities(logits)[token];
      }
      length += 1;
      nodes = [...new Set([...nodes, ...[...now.running, ...now.finished].flatMap(({ node }) => Live.Branches.path(node).slice(1))])];
      say(now.done ? result() : "");
      render();
      return !now.done;
    };

    const restart = () => {
      version += 1;
      search = now = null;
      nodes = [];
      greedy = [];
      greedySum = length = 0;
      controls.stop();
      render();
    };

    const best = () => [...now.finished, ...now.running][0];

    /* Which of the two texts is more probable; texts of different lengths are compared by their means. */
    const result = () => {
      const { tokens, logProb } = best(), same = tokens.length === greedy.length;
      if (tokens.join() === greedy.join()) { return "The search is over. It found the text that greedy decoding writes."; }
      if (!same) { return "The search is over. The two texts differ in length: compare their log-probabilities per token."; }
      const factor = Math.exp(Math.abs(logProb - greedySum));
      const [better, other] = logProb > greedySum ? ["Its text", "the text of greedy decoding"] : ["The text of greedy decoding", "the text of the search"];
      return `The search is over. ${better} is ${factor.toFixed(factor < 1.95 ? 2 : 1)} times as probable as ${other}.`;
    };

    const render = () => {
      prompt.update();
      stage.replaceChildren(...(now ? drawn() : [Live.welcome("Next token")]));
      stage.firstChild.scrollLeft = stage.firstChild.scrollWidth; /* where the tree grows */
      texts.replaceChildren(...(now ? [row("Beam search", best().tokens, best().logProb), row("Greedy", greedy, greedySum)] : []));
    };

    const row = (name, tokens, total) => element("div", { class: "live-found" },
      element("p", { class: "live-lanehead" }, element("b", {}, name), element("span", { class: "live-time" },
        `log-probability ${sum(total)}, per token ${sum(total / tokens.length)}`)),
      element("p", { class: "live-text live-small" }, tokens.map(desk.flowing).join("").trimStart()));

    const drawn = () => {
      const held = new Map(); /* by node: the hypothesis that ends there */
      for (const hypothesis of [...now.running, ...now.finished]) { held.set(hypothesis.node, hypothesis); }
      const winner = now.done ? Live.Branches.path(now.finished[0].node) : [];
      const alive = new Set([...held.keys()].flatMap(node => Live.Branches.path(node)));
      const top = Live.Branches.path(nodes[0])[0];
      let followed = top, left = false; /* how far greedy decoding can be followed in the tree, and whether it left the tree there */
      for (const token of greedy) {
        const next = !left && nodes.find(node => node.parent === followed && node.token === token);
        left ||= !next;
        followed = next || followed;
      }
      const kinds = [["target", "in the beam"], ["neutral", "no longer in the beam"], ...(now.done ? [["accepted", "the best text"]] : [])];
      const kind = node => (winner.includes(node) ? "accepted" : alive.has(node) ? "target" : "neutral");
      const shown = line => { /* tokens in a row share a box, up to one of which something is said */
        const parts = [];
        for (let from = 0, to = 1; to <= line.length; to++) {
          const node = line[to - 1], told = held.get(node), there = node === followed && (left ? "greedy decoding leaves the tree" : "greedy decoding");
          if (!told && !there && to < line.length) { continue; }
          const words = line.slice(from, to).map(({ token }) => desk.label(token)).join("");
          parts.push(box(kind(node), words, { title: kind(node) === "neutral" ? "no longer in the beam" : "in the beam" }),
            told && element("span", { class: "live-sum" }, sum(told.logProb)), there && element("span", { class: "live-sum live-there" }, there));
          from = to;
        }
        return parts;
      };
      return [tree(nodes, top, shown), element("p", { class: "live-legend" }, kinds.map(([kind, words]) => element("span", { class: `live-${kind}` }, mark(kind), words)),
        element("span", {}, "␣ a space"), element("span", {}, "−1.23 the log-probability of a hypothesis"))];
    };

    desk.changed.addEventListener("prompt", restart);
    desk.changed.addEventListener("settings", restart);
    render();
  };
})(globalThis.Live ??= {});
