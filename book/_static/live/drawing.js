/* Pieces of the live page: boxes for tokens, bars for probabilities, a line from 0 to 1. Colours and marks are those of the trace player. */
(Live => {
  "use strict";
  const MARKS = { target: "●", draft: "◇", accepted: "✓", rejected: "✗", resampled: "↻", bonus: "★", neutral: "○" };

  /* An element; an attribute that is false or undefined is left out, one that begins with "on" is a listener. */
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) { made.addEventListener(name.slice(2), value); }
      else if (name === "style") { made.style.cssText = value; }
      else if (value !== false && value !== undefined) { made.setAttribute(name, value === true ? "" : value); }
    }
    made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
    return made;
  };

  const mark = kind => element("i", { class: "live-mark", "aria-hidden": "true" }, MARKS[kind]);
  const percent = share => `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;

  /* 0.31; what is not 0 or 1 is never written as 0 or 1 */
  const number = value => (value > 0 && value < 0.005 ? "<0.01" : value < 1 && value > 0.995 ? ">0.99" : value.toFixed(2));

  const box = (kind, text, attributes = {}, tag = "span") =>
    element(tag, { ...attributes, class: `live-box live-${kind} ${attributes.class ?? ""}` }, mark(kind), text);

  /* One row for each token, with the bars of q and p (or of p alone). row: {text, p, q, kind, left}; `left`: show p above q */
  const bars = (rows, name) => element("ul", { class: "live-bars", "aria-label": name }, rows.map(({ text, p, q, kind, left }) => {
    const above = left && p > q ? p - q : 0;
    const bar = (of, size, more) => element("span", { class: `live-bar live-${of}`, style: `--size:${percent(size)};--more:${percent(more)}` });
    const told = q === undefined ? [number(p)] : [element("span", {}, `q ${number(q)}`), " ", element("span", {}, `p ${number(p)}`)];
    return element("li", { class: kind ? `live-chosen live-${kind}` : "" },
      element("span", { class: "live-name" }, kind && mark(kind), text),
      element("span", { class: "live-pair", "aria-hidden": "true" }, q !== undefined && bar("draft", q, 0), bar("target", p, above)),
      element("span", { class: "live-numbers" }, told));
  }));

  /* The line from 0 to 1, cut into segments {size, kind, text}, with a pin where the random number fell. */
  const line = (segments, at, told) => element("div", { class: "live-line", role: "img", "aria-label": told },
    element("div", { class: "live-track" }, segments.filter(({ size }) => size > 0).map(({ size, kind, text, chosen }) =>
      element("span", { class: `live-segment live-${kind} ${chosen ? "live-hit" : ""}`, style: `width:${percent(size)}` },
        size > 0.06 ? element("span", {}, text) : ""))),
    element("div", { class: "live-pin", style: `left:${percent(at)}` }, element("b", {}, number(at))),
    element("div", { class: "live-ends", "aria-hidden": "true" }, element("span", {}, "0"), element("span", {}, "1")));

  Live.draw = { element, mark, percent, number, box, bars, line };
})(globalThis.Live ??= {});
