/* Spot the bug: the reader taps the wrong line of a decoder from the book's zoo. bugs.js has the decoders: {name, lines, wrong, note, what, why, published, link}. */
(Live => {
  "use strict";
  const { element } = Live.draw;

  const play = root => {
    let number = 0, tries = 0, solved = false;
    const score = { found: 0, first: 0 };
    const task = element("p", { class: "live-verdict" }), code = element("ol", { class: "bug-code" });
    const told = element("div", { role: "status" }), sum = element("p", { class: "live-legend" });
    const next = element("button", { type: "button", class: "live-main", onclick: () => show(number + 1) }, "Next decoder");
    root.replaceChildren(task, code, told, element("div", { class: "live-buttons" }, element("button", { type: "button", onclick: () => reveal() }, "Show me"), next), sum);

    const bug = () => Live.BUGS[number];

    const tap = (line, button) => {
      if (solved) { return; }
      tries += 1;
      if (bug().wrong.includes(line)) {
        score.found += 1;
        score.first += tries === 1;
        reveal(tries === 1 ? "Found at first sight." : `Found after ${tries} taps.`);
      } else {
        button.classList.add("bug-right");
        told.replaceChildren(element("p", {}, "This line is right. Look again: which one draws from a wrong row, keeps the wrong number of tokens, or forgets something?"));
      }
    };

    const reveal = (praise = "Here it is.") => {
      solved = true;
      const { wrong, note, what, why, published, link } = bug();
      code.querySelectorAll("button").forEach((button, line) => { button.classList.toggle("bug-wrong", wrong.includes(line)); button.setAttribute("aria-disabled", "true"); });
      told.replaceChildren(element("p", { class: "live-verdict" }, `${praise} The mistake: ${note}.`), element("p", {}, what), element("p", {}, `Why people write it: ${why}`),
        element("p", {}, link ? ["Published in: ", element("a", { href: link }, published), "."] : `${published}.`));
      sum.textContent = `Found ${score.found}, ${score.first} of them at first sight.`;
    };

    const show = index => {
      number = index % Live.BUGS.length;
      tries = 0;
      solved = false;
      task.textContent = `Decoder ${number + 1} of ${Live.BUGS.length}. One line is wrong. Which?`;
      told.replaceChildren();
      code.replaceChildren(...bug().lines.map((text, line) => {
        const button = element("button", { type: "button", onclick: () => tap(line, button) }, text);
        return element("li", {}, button);
      }));
    };

    show(0);
  };

  document.querySelectorAll('[data-live="bug"]').forEach(play);
})(globalThis.Live ??= {});
