/* Why is mine slower? A calculator for speculative decoding, from measured times: which part of a round eats the gain, the best γ, and what to change. */
(Live => {
  "use strict";
  const { element, percent } = Live.draw;
  const sum = values => values.reduce((a, b) => a + b, 0);

  /* The acceptance at position i, counted from 0; the last one that is given also holds for the positions after it. */
  const acceptance = (accepted, i) => accepted[Math.min(i, accepted.length - 1)];

  /* The tokens from a round, on average: 1 + a1 + a1·a2 + …, which is theory.expected_tokens where all are equal. */
  const expectedTokens = (accepted, gamma) => {
    let reached = 1, tokens = 1;
    for (let i = 0; i < gamma; i++) { tokens += reached *= acceptance(accepted, i); }
    return tokens;
  };

  /* A round with γ drafted tokens: its parts, its tokens, and how many times as fast as plain decoding it is (theory.measured_factor). */
  const round = (given, gamma) => {
    const { calls, draft, accepted, between = 0, prompt = 0, tokens: all = 1 } = given, tokens = expectedTokens(accepted, gamma);
    const parts = { call: calls[0], wide: calls[gamma] - calls[0], draft: gamma * draft, between: gamma ? between : 0, prompt: gamma ? prompt * tokens / all : 0 };
    return { gamma, tokens, parts, factor: tokens * calls[0] / sum(Object.values(parts)) };
  };
  const bestGamma = given => Array.from({ length: given.calls.length }, (_, gamma) => round(given, gamma)).reduce((a, b) => (b.factor > a.factor ? b : a)).gamma;

  /* How the gain of a perfect round, γ + 1, is lost: the shares of its logarithm that go to rejected tokens and to each part of the time. */
  const losses = (given, gamma) => {
    const { tokens, parts } = round(given, gamma), longer = ["wide", "draft", "between", "prompt"].map(name => [name, Math.max(0, parts[name])]);
    const excess = sum(longer.map(([, time]) => time)) || 1, time = Math.log(1 + excess / parts.call);
    return { rejected: Math.log((gamma + 1) / tokens), ...Object.fromEntries(longer.map(([name, part]) => [name, time * part / excess])) };
  };

  const PARTS = { call: ["target", "a plain call of the target"], wide: ["resampled", "more, because the call has γ + 1 tokens"], draft: ["draft", "drafting"],
    between: ["neutral", "between the calls"], prompt: ["bonus", "the draft reads the prompt (spread over all rounds)"] };

  const ADVICE = {
    rejected: ["Most is lost to rejected tokens.", "Give the draft the same prompt with the same chat template as the target.", "Check that both have the same tokenizer, and that the heads were trained for this very target: a quantized or fine-tuned target writes other texts.",
      "For EAGLE, check the layers whose states it reads. As a test, let the target be its own draft: everything must be accepted.", "Draft fewer tokens. Text that repeats its prompt (code, summaries) is better drafted by a lookup."],
    wide: ["Most is lost because a call with several tokens is dear.", "Measure a call of two tokens: if it costs nearly twice as much as one, the products have a quick way for one row only. Use other kernels, or the loops of chapter 1.",
      "With many texts at once, or with a mixture of experts, a second token is never free: draft fewer tokens.", "Very long contexts are read anew for each text: there a lookup or a short draft is best."],
    draft: ["Most is lost to drafting.", "Time depends on the draft's layers more than on its width: take a draft with fewer layers, or heads that use the target's states.", "Run the draft in the same kernels, and in the same precision, as the target.",
      "Try a lookup, whose drafts cost no call, or the target's own copy in eight bits."],
    between: ["Most is lost between the calls.", "Look for what is done once a round in Python: copies from the GPU, random numbers, grammars, bookkeeping.", "A larger target or several texts at once make this part smaller."],
    prompt: ["Most is lost while the draft reads the prompt.", "For short answers to long prompts, use heads or a lookup: they read no prompt.", "Let the draft keep its cache from one turn of a chat to the next."]
  };

  /* What the numbers say: the speed, notes on it, what costs most, and tips against that. */
  const verdict = given => {
    const now = round(given, given.gamma), best = round(given, bestGamma(given)), lost = losses(given, given.gamma);
    const worst = Object.keys(lost).reduce((a, b) => (lost[b] > lost[a] ? b : a)), [most, ...tips] = ADVICE[worst], notes = [];
    const c = given.draft / given.calls[0], first = given.accepted[0], step = given.accepted.findIndex(rate => rate < 0.6 * first);
    const speed = now.factor >= 1 ? `${now.factor.toFixed(2)} times as fast as plain decoding` : `slower than plain decoding: ${now.factor.toFixed(2)} times its speed`;
    if (best.gamma === 0) { notes.push("No γ is faster than plain decoding."); }
    else if (best.factor > 1.02 * now.factor) { notes.push(`The best γ is ${best.gamma}: ${best.factor.toFixed(2)} times the speed of plain decoding.`); }
    else { notes.push(`γ = ${given.gamma} is as good as any.`); }
    if (c >= first) { notes.push(`A drafted token costs ${c.toFixed(2)} of a call and is accepted with probability ${first.toFixed(2)}. Where the first number is not the smaller one, drafting cannot pay.`); }
    if (step > 0) { notes.push(`From position ${step + 1} on, far fewer tokens are accepted than before: the draft may not have been trained to that depth. Try γ = ${step}.`); }
    return { speed: `With γ = ${given.gamma}, speculation is ${speed}. A round gives ${now.tokens.toFixed(2)} tokens.`, notes, worst, most, tips, now, best };
  };
  Object.assign(Live, { why: { expectedTokens, round, bestGamma, losses, verdict } });

  /* ---- the form ---- */

  const FIELDS = {
    calls: ["Calls of the target with 1, 2, 3, … tokens", "times, separated by spaces"], draft: ["One drafted token", "time"],
    accepted: ["Accepted drafted tokens", "share, or one for each position"], gamma: ["γ, tokens drafted in a round", "a whole number"],
    between: ["Between the calls of a round", "time, beyond that of plain decoding"], prompt: ["Until the draft has read the prompt", "time"], tokens: ["New tokens of a text", "a number"]
  };
  const LISTS = ["calls", "accepted"], EMPTY = { between: 0, prompt: 0, tokens: 100 };

  /* The numbers in the form, or an Error that says which of them is wrong. */
  const read = texts => {
    const found = {};
    for (const [name, text] of Object.entries(texts)) {
      const numbers = text.trim().split(/[\s,;]+/).filter(Boolean).map(Number), [label] = FIELDS[name];
      if (!numbers.length && name in EMPTY) { found[name] = EMPTY[name]; continue; }
      if (!numbers.length || numbers.some(value => !Number.isFinite(value) || value < 0)) { throw new Error(`“${label}” needs ${LISTS.includes(name) ? "numbers" : "a number"} of 0 or more.`); }
      if (!LISTS.includes(name) && numbers.length > 1) { throw new Error(`“${label}” needs one number.`); }
      found[name] = LISTS.includes(name) ? numbers : numbers[0];
    }
    if (found.calls.some(time => time === 0)) { throw new Error("Each call of the target takes some time: a time is 0."); }
    if (found.accepted.some(rate => rate > 1)) { throw new Error("Shares of accepted tokens are from 0 to 1, such as 0.7."); }
    if (!Number.isInteger(found.gamma) || found.gamma < 1) { throw new Error("γ is a whole number of at least 1."); }
    if (found.calls.length < found.gamma + 1) { throw new Error(`γ = ${found.gamma} needs the time of a call with ${found.gamma + 1} tokens. There are ${found.calls.length} times.`); }
    if (found.tokens < 1) { throw new Error("A text has at least one new token."); }
    return found;
  };

  const startWhy = root => {
    const inputs = {};
    const field = name => {
      inputs[name] = element("input", { type: "text", inputmode: "decimal", oninput: () => { choice.value = ""; told.textContent = ""; answer(); } });
      return element("label", { class: `live-ask why-${name}` }, element("span", {}, FIELDS[name][0], " ", element("small", {}, FIELDS[name][1])), inputs[name]);
    };
    const choice = element("select", { onchange: () => { if (choice.value) { show(Live.CASES[choice.value]); } } },
      element("option", { value: "" }, "your own numbers"), Object.keys(Live.CASES).map(name => element("option", { value: name }, name)));
    const told = element("p", { class: "why-told" });
    const pasted = element("input", { type: "text", placeholder: "{\"calls\": …}", oninput: () => {
      try { choice.value = ""; show(JSON.parse(pasted.value)); } catch { told.textContent = "This is not the line that the command printed."; }
    } });
    const result = element("div", { role: "status" });
    root.replaceChildren(element("label", { class: "live-ask" }, element("span", {}, "A case to begin with"), choice), told,
      element("div", { class: "why-fields" }, Object.keys(FIELDS).map(field)),
      element("label", { class: "live-ask" }, element("span", {}, "Or paste the line that ", element("code", {}, "python -m tutorlib bench --why"), " prints"), pasted), result);

    const show = given => {
      for (const name of Object.keys(FIELDS)) { inputs[name].value = [given[name] ?? EMPTY[name] ?? ""].flat().join(" "); }
      told.textContent = given.told ?? "";
      answer();
    };

    const answer = () => {
      let given;
      try { given = read(Object.fromEntries(Object.entries(inputs).map(([name, { value }]) => [name, value]))); }
      catch (error) { result.replaceChildren(element("p", { class: "live-bad" }, error.message)); return; }
      const { speed, notes, most: costs, tips, now, best } = verdict(given);
      const scale = Math.max(now.tokens, sum(Object.values(now.parts)) / given.calls[0]);
      const bar = (label, pieces) => element("div", { class: "why-row" }, element("span", {}, label), element("span", { class: "why-track", "aria-hidden": "true" },
        pieces.filter(([, size]) => size > 0).map(([kind, size]) => element("span", { class: `why-piece live-${kind}`, style: `width:${percent(size / scale)}` }))));
      const parts = Object.entries(now.parts).filter(([, time]) => time > 0);
      result.replaceChildren(element("p", { class: "live-verdict" }, speed),
        bar(`Plain decoding: ${now.tokens.toFixed(2)} calls`, Array.from({ length: Math.ceil(now.tokens) }, (_, i) => ["target", Math.min(1, now.tokens - i)])),
        bar("The same tokens in one round", parts.map(([name, time]) => [PARTS[name][0], time / given.calls[0]])),
        element("p", { class: "live-legend" }, parts.map(([name, time]) => element("span", { class: `live-${PARTS[name][0]}` }, element("i", { class: "why-swatch", "aria-hidden": "true" }), `${PARTS[name][1]}: ${(time / given.calls[0]).toFixed(2)} calls`))),
        element("p", {}, notes.join(" ")), element("p", { class: "live-verdict" }, costs), element("ul", { class: "why-tips" }, tips.map(tip => element("li", {}, tip))),
        element("table", { class: "live-score why-table" }, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "γ"), element("th", { scope: "col" }, "tokens a round"), element("th", { scope: "col" }, "speed"))),
          element("tbody", {}, Array.from({ length: given.calls.length - 1 }, (_, i) => round(given, i + 1)).map(({ gamma, tokens, factor }) => element("tr", gamma === best.gamma ? { class: "why-best" } : {},
            element("th", { scope: "row" }, `${gamma}${gamma === best.gamma ? " (best)" : ""}`), element("td", {}, tokens.toFixed(2)), element("td", {}, `${factor.toFixed(2)} ×`))))));
    };

    choice.value = Object.keys(Live.CASES)[1];
    show(Live.CASES[choice.value]);
  };

  document.querySelectorAll('[data-live="why"]').forEach(startWhy);
})(globalThis.Live ??= {});
