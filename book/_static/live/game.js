/* Be the target: the reader accepts or rejects what a draft proposes, and sees which distribution these answers lead to. No model is needed. */
(Live => {
  "use strict";
  const { element, mark, box, bars } = Live.draw;
  const TOKENS = ["kite", "drum", "bell", "rope"];
  const TURNS = 24;

  /* Which distribution comes out if token x is accepted with probability accept[x], and drawn from the residual otherwise. */
  const outcome = (p, q, accept) => {
    const rest = Live.residual(p, q), rejected = q.reduce((sum, value, id) => sum + value * (1 - accept[id]), 0);
    return q.map((value, id) => value * accept[id] + rejected * rest[id]);
  };
  const drift = (a, b) => a.reduce((sum, value, id) => sum + Math.abs(value - b[id]), 0) / 2;
  const accepted = (q, accept) => q.reduce((sum, value, id) => sum + value * accept[id], 0);
  const rule = (p, q) => p.map((value, id) => Math.min(1, value / q[id]));
  Object.assign(Live, { outcome, drift });

  Live.game = root => {
    let rng, p, q, offered, answers, seed = 1;

    const invented = () => {
      const weights = TOKENS.map(() => 0.05 + rng.uniform()), sum = weights.reduce((a, b) => a + b);
      return weights.map(weight => weight / sum);
    };

    const stage = element("div", {});
    const told = element("p", { class: "live-status", role: "status" });
    const acceptButton = element("button", { type: "button", onclick: () => answer(true) }, "✓ Accept");
    const rejectButton = element("button", { type: "button", onclick: () => answer(false) }, "✗ Reject");
    const buttons = element("div", { class: "live-buttons" }, acceptButton, rejectButton,
      element("button", { type: "button", onclick: () => begin() }, "New game"));
    const question = element("p", { class: "live-verdict" });
    root.replaceChildren(question, buttons, told, stage);

    const begin = () => {
      rng = new Live.Seeded(seed++);
      do { p = invented(); q = invented(); } while (drift(p, q) < 0.25);
      answers = TOKENS.map(() => ({ yes: 0, no: 0 }));
      told.textContent = "";
      turn();
    };

    const asked = () => answers.reduce((sum, { yes, no }) => sum + yes + no, 0);

    /* The share of a token's offers that the reader has accepted; the right share where it was never offered. */
    const shares = () => answers.map(({ yes, no }, id) => (yes + no ? yes / (yes + no) : rule(p, q)[id]));

    const answer = yes => {
      if (asked() >= TURNS) { return; }
      answers[offered][yes ? "yes" : "no"] += 1;
      const word = TOKENS[yes ? offered : rng.choose(Live.residual(p, q))];
      told.textContent = yes ? `The text gets “${word}”.` : `“${TOKENS[offered]}” is rejected. From the part of p above q comes “${word}”.`;
      turn();
    };

    const turn = () => {
      const over = asked() >= TURNS;
      offered = rng.choose(q);
      question.replaceChildren(...(over ? [`After ${TURNS} turns, here is how you did.`]
        : [`Turn ${asked() + 1} of ${TURNS}. The draft proposes `, box("draft", TOKENS[offered]), " Do you accept it?"]));
      for (const button of [acceptButton, rejectButton]) { over ? button.setAttribute("aria-disabled", "true") : button.removeAttribute("aria-disabled"); }
      const rows = TOKENS.map((text, id) => ({ text, p: p[id], q: q[id], kind: !over && id === offered ? "draft" : undefined }));
      stage.replaceChildren(bars(rows, "Probabilities of the draft (q) and of the target (p)"),
        element("p", { class: "live-legend" }, element("span", { class: "live-draft" }, mark("draft"), "q, the draft"),
          element("span", { class: "live-target" }, mark("target"), "p, the target")),
        ...(asked() ? [score(over)] : []));
    };

    const score = over => {
      const mine = shares(), all = TOKENS.map(() => 1), none = TOKENS.map(() => 0);
      const line = (name, accept) => element("tr", {}, element("th", { scope: "row" }, name),
        element("td", {}, `${Math.round(100 * accepted(q, accept))} %`), element("td", {}, drift(outcome(p, q, accept), p).toFixed(2)));
      const lines = [line("You", mine)];
      if (over) { lines.push(line("Accept everything", all), line("Reject everything", none), line("Accept with probability min(1, p/q)", rule(p, q))); }
      return element("table", { class: "live-score" },
        element("thead", {}, element("tr", {}, element("td", {}), element("th", { scope: "col" }, "Accepted"), element("th", { scope: "col" }, "Distance from p"))),
        element("tbody", {}, lines));
    };

    begin();
  };
})(globalThis.Live ??= {});
