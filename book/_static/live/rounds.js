/* Two parts of the live page: Medusa and EAGLE, round by round. Heads or a network guess a tree, and one call of the target checks it. */
(Live => {
  "use strict";
  const { element, box, tree } = Live.draw;

  /* who: the one that guesses, in words; settings: further elements; method(session, tokens, settings): its generator of rounds */
  const play = (root, { who, settings, method }) => {
    const { desk } = Live;
    let written = []; /* {token, kind} after the prompt */
    let round = null; /* what tree_decoder.js yielded last */
    let steps = null, rounds = 0, version = 0;

    const prompt = Live.promptBox();
    const controls = Live.controls({ label: "Next round", step: say => next(say), restart: () => restart() });
    const text = element("p", { class: "live-text", tabindex: "0", "aria-label": "The text so far", role: "group" });
    const stage = element("div", {}), counts = element("dl", { class: "live-counts" });
    root.replaceChildren(...prompt.elements,
      element("div", { class: "live-settings" },
        desk.slider("temperature", "Temperature", { min: 0, max: 2, step: 0.1 }, value => (value ? value.toFixed(1) : "0")), settings),
      controls.buttons, text, controls.status, stage, counts);

    const next = async say => {
      const { tokens, problem } = desk.read(), began = version;
      if (problem) { say(problem, true); return false; }
      const models = await desk.ready(say);
      if (!models) { return false; }
      const [session] = models.sessions.target;
      if (!steps) { await desk.warm(session, tokens); }
      if (began !== version) { return true; } /* the reader has changed something in the meantime */
      steps ??= method(session, tokens, { rng: desk.rng(), warp: desk.warp() });
      const { value } = written.at(-1)?.token === desk.tokenizer.end ? {} : steps.next();
      if (!value) { say("The story has ended, or the text is as long as the model can read. Start again."); return false; }
      round = value;
      rounds += 1;
      const end = round.tokens.indexOf(desk.tokenizer.end);
      if (end >= 0) { round.tokens.length = end + 1; }
      written.push(...round.tokens.map((token, at) => ({ token, kind: at < round.path.length ? "accepted" : own() })));
      say("");
      render();
      return true;
    };

    /* The target's own token: at a leaf it follows an accepted path to its end, elsewhere it takes the place of guesses. */
    const own = () => (!round.nodes.length ? "target" : round.nodes.some(({ parent }) => parent === round.path.at(-1)) || !round.path.length ? "resampled" : "bonus");

    const restart = () => {
      version += 1;
      written = [];
      round = steps = null;
      rounds = 0;
      controls.stop();
      render();
    };

    const render = () => {
      prompt.update();
      text.replaceChildren(element("span", { class: "live-prompt" }, desk.prompt),
        ...written.map(({ token, kind }, i) => element("u", { class: `live-${kind} ${i >= written.length - (round?.tokens.length ?? 0) ? "live-now" : ""}` }, desk.flowing(token))));
      text.scrollTop = text.scrollHeight;
      stage.replaceChildren(round ? looked() : Live.welcome("Next round"));
      const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
      counts.replaceChildren(...(rounds ? [fact("Tokens", String(written.length)), fact("Calls of the target", String(rounds)),
        fact("Tokens per call", (written.length / rounds).toFixed(2))] : []));
    };

    const looked = () => {
      const { nodes, path, tokens } = round, top = nodes[0]?.parent, last = tokens[path.length];
      const fate = node => (path.includes(node) ? "accepted" : node.parent === top || path.includes(node.parent) ? "rejected" : "neutral");
      const shown = line => line.map(node => box(fate(node), desk.label(node.token), { title: fate(node) === "neutral" ? "never checked" : fate(node) }));
      return element("div", { class: "live-round" },
        nodes.length ? [element("p", { class: "live-what" }, `The ${who} guessed`), tree(nodes, top, shown)]
          : element("p", {}, `The first call reads the prompt. There is nothing yet from which the ${who} can guess.`),
        last !== undefined && element("p", { class: "live-row" }, element("span", { class: "live-what" }, "The target added"), box(own(), desk.label(last))));
    };

    desk.changed.addEventListener("prompt", restart);
    desk.changed.addEventListener("settings", restart);
    render();
  };

  Live.heads = root => play(root, { who: "heads", settings: [],
    method: (session, tokens, settings) => Live.medusa(session, tokens, { choices: Live.VILLAGE.models.medusa.choices, ...settings }) });

  Live.network = root => play(root, { who: "network", settings: [Live.desk.slider("guesses", "Guesses", { min: 1, max: 7, step: 1 }, String)],
    method: (session, tokens, settings) => Live.eagle(session, tokens, { length: Live.desk.guesses, ...settings }) });
})(globalThis.Live ??= {});
