/* The first part of the live page: a prompt, a button for each token, and what happened to that token. */
(Live => {
  "use strict";
  const { element, mark, number, box, bars, line } = Live.draw;
  const SHOWN = 8; /* tokens in the bars */

  Live.steps = root => {
    const { desk } = Live;
    let written = []; /* {token, kind} after the prompt */
    let round = null; /* the last step of the method, as decoder.js yields it, and how long it took */
    let shown = 0; /* how many of its tokens the reader has seen */
    let looked = 0; /* which of them is explained */
    let rounds = 0, rng = desk.rng(), version = 0;

    const prompt = Live.promptBox();
    const method = (value, label) => element("label", {}, element("input", { type: "radio", name: "live-method", value, checked: desk.method === value,
      onchange: () => desk.change("method", value) }), element("span", {}, label));
    const gamma = desk.slider("gamma", "Guesses, γ", { min: 1, max: 8, step: 1 }, String);
    const seed = element("input", { type: "number", min: 0, max: 9999, step: 1, value: desk.seed, oninput: () => {
      const value = Math.floor(Number(seed.value));
      if (seed.value !== "" && value >= 0 && value < 2 ** 32) { desk.change("seed", value); }
    } });
    const heard = element("p", { class: "live-heard", "aria-live": "polite" }); /* what a screen reader says of each token */
    const text = element("p", { class: "live-text", tabindex: "0", "aria-label": "The text so far", role: "group" });
    const stage = element("div", { class: "live-stage" });
    const counts = element("dl", { class: "live-counts" });

    const buttons = Live.controls({ label: "Next token", step: say => next(say), restart: () => restart() });
    root.replaceChildren(
      ...prompt.elements,
      element("div", { class: "live-settings" },
        element("fieldset", {}, element("legend", {}, "Method"), method("speculative", "Speculative"), method("plain", "Plain loop")),
        gamma,
        desk.slider("temperature", "Temperature", { min: 0, max: 2, step: 0.1 }, value => (value ? value.toFixed(1) : "0")),
        desk.slider("topP", "Top-p", { min: 0.05, max: 1, step: 0.05 }, value => (value === 1 ? "1" : value.toFixed(2))),
        element("label", { class: "live-seed" }, element("span", {}, "Seed"), seed)),
      buttons.buttons, text, buttons.status, heard, stage, counts);

    /* ------------------------------------------------------------------------------------------------ what happens */

    const over = () => {
      const last = written.at(-1)?.token, length = desk.read().tokens.length + written.length;
      if (last === desk.tokenizer.end) { return "The story has ended. Start again, or change the prompt."; }
      return length >= desk.models.target.context ? `The text has ${length} tokens, as many as the models can read. Start again.` : "";
    };

    const pending = () => Boolean(round) && shown < round.tokens.length;

    /* Compute the next round, unless there is still something of the last one to show; false if there is nothing to show then. */
    const prepare = async models => {
      if (pending()) { return true; }
      const began = version, [target] = models.sessions.target, [draft] = models.sessions.draft;
      const tokens = [...desk.read().tokens, ...written.map(({ token }) => token)];
      const speculative = desk.method === "speculative";
      await desk.warm(target, tokens);
      if (speculative) { await desk.warm(draft, tokens); }
      if (began !== version) { return false; } /* the reader has changed something in the meantime */
      const settings = { gamma: desk.gamma, rng, warp: desk.warp() }, start = performance.now();
      const { value } = (speculative ? Live.speculative(target, draft, tokens, settings) : Live.plain(target, tokens, settings)).next();
      round = { ...value, milliseconds: performance.now() - start };
      shown = 0;
      rounds += 1;
      return true;
    };

    const kindOf = at => (round.checks[at]?.accepted ? "accepted" : round.added.kind);

    const next = async say => {
      const { problem } = desk.read();
      if (problem) { say(problem, true); return false; }
      const models = await desk.ready(say);
      if (!models) { return false; }
      if (over() && !pending()) { say(over()); return false; }
      if (await prepare(models)) {
        looked = shown;
        written.push({ token: round.tokens[shown], kind: kindOf(shown) });
        shown += 1;
        if (written.at(-1).token === desk.tokenizer.end) { round.tokens.length = shown; }
        heard.textContent = `${desk.label(written.at(-1).token)}, ${written.at(-1).kind}`;
        say(pending() ? "" : over());
        render();
      }
      return pending() || !over();
    };

    const restart = () => {
      version += 1;
      written = [];
      round = null;
      shown = looked = rounds = 0;
      rng = desk.rng();
      buttons.stop();
      heard.textContent = "";
      render();
    };

    /* Other settings hold from the next token on: what was computed and not yet shown is dropped. */
    const reset = () => {
      version += 1;
      if (round) { round.tokens.length = shown; }
      const random = desk.rng();
      if (random.constructor !== rng.constructor) { rng = random; }
      labelSettings();
    };

    /* ------------------------------------------------------------------------------------------------ what is shown */

    const labelSettings = () => {
      prompt.update();
      gamma.querySelector("input").disabled = desk.method === "plain";
      seed.disabled = desk.temperature === 0;
    };

    const render = () => {
      labelSettings();
      text.replaceChildren(element("span", { class: "live-prompt" }, desk.prompt),
        ...written.map(({ token, kind }, i) => element("u", { class: `live-${kind} ${i === written.length - 1 ? "live-now" : ""}` }, desk.flowing(token))));
      text.scrollTop = text.scrollHeight;
      stage.replaceChildren(...(round ? [drafted(), explained()] : [Live.welcome("Next token")]).filter(Boolean));
      counts.replaceChildren(...(rounds ? facts() : []));
    };

    const facts = () => {
      const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
      const complete = shown === round.tokens.length;
      const per = complete ? (written.length / rounds).toFixed(2) : "…";
      return [fact("Tokens", String(written.length)), fact("Calls of the target", String(rounds)), fact("Tokens per call", per),
        fact("This round took", `${round.milliseconds.toFixed(0)} ms`)];
    };

    /* The row of guesses, and the token that the target added; each can be looked at again. */
    const drafted = () => {
      if (!round.drafted.length) { return null; }
      const seen = (at, kind, token, told) => box(kind, desk.label(token), { type: "button", "aria-pressed": String(at === looked), "aria-label": told,
        class: at === looked ? "live-looked" : "", onclick: () => { looked = at; render(); stage.querySelectorAll("button")[at]?.focus(); } }, "button");
      const boxes = round.drafted.map((token, at) => {
        const check = at < shown ? round.checks[at] : undefined, name = desk.label(token);
        if (check) { return seen(at, check.accepted ? "accepted" : "rejected", token, `${name}, ${check.accepted ? "accepted" : "rejected"}`); }
        const rejected = shown > round.checks.length - 1 && round.checks.some(({ accepted }, i) => !accepted && i < shown);
        return box(rejected ? "neutral" : "draft", name, { title: rejected ? "drafted, never checked" : "drafted, not yet checked" });
      });
      const final = shown === round.checks.filter(({ accepted }) => accepted).length + 1;
      const at = round.tokens.length - 1;
      return element("div", { class: "live-round" },
        element("p", { class: "live-row" }, element("span", { class: "live-what" }, "The draft guessed"), boxes),
        element("p", { class: "live-row" }, element("span", { class: "live-what" }, "The target added"),
          final ? (round.added.kind === "bonus" ? seen(at, "bonus", round.added.token, `${desk.label(round.added.token)}, bonus`)
            : box("resampled", desk.label(round.added.token))) : element("span", { class: "live-what" }, "…")));
    };

    const quoted = token => `“${desk.label(token)}”`;
    const equals = (name, value) => `${name} ${/^[<>]/.test(number(value)) ? number(value).replace(/^./, "$& ") : `= ${number(value)}`}`;

    /* The rows of bars: the most likely tokens of both models, those that something happened to, and all others as one. */
    const rowsOf = (p, q, special) => {
      const most = p.map((value, id) => Math.max(value, q ? q[id] : 0)), left = Object.values(special).includes("resampled");
      const best = Live.byLikelihood(most).filter(id => most[id] >= 0.005);
      const ids = [...new Set([...Object.keys(special).map(Number), ...best])].slice(0, SHOWN).sort((a, b) => p[b] - p[a] || a - b);
      const rest = probs => Math.max(0, 1 - ids.reduce((sum, id) => sum + probs[id], 0));
      const rows = ids.map(id => ({ text: desk.label(id), p: p[id], q: q?.[id], kind: special[id], left }));
      const others = { text: "all others", p: rest(p), q: q && rest(q) };
      return Math.max(others.p, others.q ?? 0) < 0.005 ? rows : [...rows, others];
    };

    /* The line on which a token is drawn: the likeliest ones one by one, the rest as one. */
    const drawLine = (probs, token, kind, coin, told) => {
      const order = Live.byLikelihood(probs).filter(id => probs[id] > 0), first = order.slice(0, SHOWN), rest = order.slice(SHOWN);
      const segments = first.map(id => ({ size: probs[id], kind: id === token ? kind : "neutral", text: desk.label(id), chosen: id === token }));
      const others = rest.reduce((sum, id) => sum + probs[id], 0);
      segments.push({ size: others, kind: rest.includes(token) ? kind : "neutral", text: "others", chosen: rest.includes(token) });
      return line(segments, coin, `${told} The random number is ${number(coin)}: ${desk.label(token)}.`);
    };

    const legend = kinds => element("p", { class: "live-legend" }, kinds.map(([kind, words]) => element("span", { class: `live-${kind}` }, mark(kind), words)), element("span", {}, "␣ a space"));

    const explained = () => {
      const check = round.checks[looked], { added } = round, greedy = (check ?? added).coin === null;
      return element("div", { class: "live-card" }, check ? checked(check, added, greedy) : alone(added, greedy));
    };

    /* A guess of the draft was checked. */
    const checked = (check, added, greedy) => {
      const { token, threshold, accepted, coin } = check;
      const p = greedy ? Live.probabilities(check.logits) : check.p, q = greedy ? Live.probabilities(check.draftLogits) : check.q;
      const special = accepted ? { [token]: "accepted" } : { [token]: "rejected", [added.token]: "resampled" };
      const parts = [];
      const verdict = words => element("p", { class: "live-verdict" }, words);
      if (greedy) {
        parts.push(verdict([accepted ? box("accepted", desk.label(token)) : box("rejected", desk.label(token)), accepted
          ? " is also the target's most likely token, so it is accepted."
          : [" is not the target's most likely token, so it is rejected. The target's own choice takes its place: ", box("resampled", desk.label(added.token))]]));
      } else {
        const chance = check.p[token] >= check.q[token]
          ? "The target likes it at least as much as the draft does, so it is always accepted."
          : `It is accepted with probability ${equals("p/q", threshold)}.`;
        parts.push(element("p", {}, `The draft guessed ${quoted(token)}, to which it gave ${equals("q", q[token])}. The target gives it ${equals("p", p[token])}. ${chance}`));
        parts.push(line([{ size: threshold, kind: "accepted", text: "accept", chosen: accepted }, { size: 1 - threshold, kind: "rejected", text: "reject", chosen: !accepted }],
          coin, `Accepted below ${number(threshold)}. The random number is ${number(coin)}.`));
        parts.push(verdict([accepted ? box("accepted", desk.label(token)) : box("rejected", desk.label(token)),
          ` The random number is ${number(coin)}: ${accepted ? "accepted" : "rejected"}.`]));
      }
      parts.push(bars(rowsOf(p, q, special), "Probabilities of the next token"));
      parts.push(legend([["draft", "q, the draft"], ["target", "p, the target"], ...(accepted || greedy ? [] : [["resampled", "the part of p above q"]])]));
      if (!accepted && !greedy) {
        parts.push(element("p", {}, "In its place, a token is drawn from the part of p that lies above q:"));
        parts.push(drawLine(added.probs, added.token, "resampled", added.coin, "Drawn from the part of p above q."));
        parts.push(verdict([box("resampled", desk.label(added.token)), ` The random number is ${number(added.coin)}, which falls on ${quoted(added.token)}.`]));
      }
      return parts;
    };

    /* The target's own token: of a plain loop, or the bonus. */
    const alone = (added, greedy) => {
      const { token, kind, coin } = added, p = greedy ? Live.probabilities(added.logits) : added.probs;
      const why = kind === "bonus"
        ? "All guesses were accepted. The same call of the target also gives the probabilities of the token after them, so one more token is free."
        : "One call of the target gives the probabilities of one token.";
      const end = greedy ? [box(kind, desk.label(token)), " is the most likely token, so it is taken."]
        : [box(kind, desk.label(token)), ` The random number is ${number(coin)}, which falls on ${quoted(token)}.`];
      return [element("p", {}, why), greedy ? null : drawLine(p, token, kind, coin, "Drawn from p."),
        element("p", { class: "live-verdict" }, end), bars(rowsOf(p, undefined, { [token]: kind }), "Probabilities of the next token"),
        legend([["target", "p, the target"]])].filter(Boolean);
    };

    desk.changed.addEventListener("prompt", restart);
    desk.changed.addEventListener("settings", reset);
    render();
  };
})(globalThis.Live ??= {});
