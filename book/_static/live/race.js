/* Two more parts of the live page: a race between the two methods, and what a call of the target costs. Both can do without the kernel. */
(Live => {
  "use strict";
  const { element, percent } = Live.draw;
  const GOAL = 96; /* tokens that each method writes */
  const SIZES = [1, 2, 3, 5, 8]; /* tokens in a call */

  const ticked = (value, digits = 0) => (value < 10 && digits === 0 ? value.toFixed(1) : value.toFixed(digits));

  /* The switch for the kernel, which all parts share. */
  const kernelSwitch = desk => {
    const input = element("input", { type: "checkbox", role: "switch", checked: desk.kernel, onchange: () => desk.change("kernel", input.checked) });
    const words = element("span", {});
    const update = () => {
      const missing = desk.models && !desk.models.target.kernel;
      input.checked = desk.kernel;
      input.disabled = Boolean(missing);
      words.textContent = missing ? "Your browser has no WebAssembly with SIMD, so plain JavaScript computes"
        : desk.kernel ? "The kernel is on: four numbers at a time" : "The kernel is off: plain JavaScript, one number at a time";
    };
    desk.changed.addEventListener("kernel", update);
    update();
    return element("label", { class: "live-switch" }, input, words);
  };

  const buttonAndStatus = (label, act) => {
    const status = element("p", { class: "live-status", role: "status" });
    const say = (words, bad = false) => {
      status.textContent = words;
      status.classList.toggle("live-bad", bad);
    };
    let busy = false;
    const button = element("button", { type: "button", class: "live-main", onclick: async () => {
      if (busy) { return; }
      busy = true;
      button.setAttribute("aria-disabled", "true");
      try { await act(say); } catch (error) { say(`Something went wrong: ${error.message}`, true); }
      busy = false;
      button.removeAttribute("aria-disabled");
    } }, label);
    return { button, status };
  };

  Live.race = root => {
    const { desk } = Live;
    const lanes = [["plain", "Plain loop, one token a call"], ["speculative", "Speculative decoding"]].map(([method, name]) => {
      const bar = element("span", { class: "live-done" }), flag = element("span", { class: "live-flag" }), time = element("span", { class: "live-time" }), text = element("p", { class: "live-text live-small" });
      const box = element("div", { class: `live-lane live-${method === "plain" ? "target" : "accepted"}` },
        element("p", { class: "live-lanehead" }, element("b", {}, name), time), element("div", { class: "live-progress", "aria-hidden": "true" }, bar, flag), text);
      return { method, name, bar, flag, time, text, box };
    });

    const draw = (lane, goal) => {
      const tokens = Math.min(lane.tokens.length - lane.from, goal), seconds = lane.milliseconds / 1000;
      lane.bar.style.width = percent(tokens / goal);
      lane.time.textContent = tokens ? `${tokens} tokens, ${lane.calls} calls, ${seconds.toFixed(2)} s` : "";
      lane.text.textContent = lane.tokens.slice(lane.from, lane.from + goal).map(desk.flowing).join("").trimStart();
    };

    const run = async say => {
      const { tokens, problem } = desk.read(), models = await desk.ready(say);
      if (problem) { say(problem, true); return; }
      if (!models) { return; }
      const goal = Math.min(GOAL, models.target.context - tokens.length);
      const warp = desk.warp(), greedy = desk.temperature === 0;
      say("They are running …");
      for (const [i, lane] of lanes.entries()) {
        const target = models.sessions.target[i + 1], draft = models.sessions.draft[i + 1], text = [...tokens], rng = desk.rng();
        Object.assign(lane, { tokens: text, from: tokens.length, milliseconds: 0, calls: 0 });
        lane.steps = lane.method === "plain" ? Live.plain(target, text, { rng, warp }) : Live.speculative(target, draft, text, { gamma: desk.gamma, rng, warp });
        lane.flag.style.left = "";
        draw(lane, goal);
        await desk.warm(target, text);
        target.rows(text);
        if (lane.method === "speculative") { await desk.warm(draft, text); }
      }
      /* Each has a clock of its own, which runs only while it computes. The one whose clock shows less makes the next step. */
      const running = () => lanes.filter(lane => lane.tokens.length < lane.from + goal).sort((a, b) => a.milliseconds - b.milliseconds);
      let finished;
      for (let [lane] = running(), painted = performance.now(); lane; [lane] = running()) {
        const start = performance.now();
        lane.steps.next();
        lane.milliseconds += performance.now() - start;
        lane.calls += 1;
        if (running().length === 1 && !finished) { /* where the other one is at this moment */
          [finished] = running().map(other => ((other.tokens.length - other.from) / goal));
          running()[0].flag.style.left = percent(finished);
        }
        if (performance.now() - painted > 40) {
          lanes.forEach(one => draw(one, goal));
          await desk.pause();
          painted = performance.now();
        }
      }
      lanes.forEach(one => draw(one, goal));
      const [plain, speculative] = lanes, rate = lane => (lane.tokens.length - lane.from) / lane.milliseconds * 1000;
      const ratio = rate(speculative) / rate(plain);
      root.dataset.ratio = ratio.toFixed(3);
      root.dataset.rates = `${rate(plain).toFixed(1)} ${rate(speculative).toFixed(1)}`;
      const same = plain.text.textContent === speculative.text.textContent;
      say([
        `The plain loop wrote ${rate(plain).toFixed(0)} tokens a second, speculative decoding ${rate(speculative).toFixed(0)}:`,
        ratio >= 1 ? `${ratio.toFixed(1)} times as many.` : `only ${ratio.toFixed(1)} times as many, so here speculation does not pay.`,
        "The mark in a bar shows how far that method was when the other one had finished.",
        greedy ? (same ? "Both wrote the same text." : "The texts differ: two tokens were equally likely up to rounding.")
          : "The texts differ because the random draws do. Both come from the same distribution."
      ].join(" "));
    };

    const { button, status } = buttonAndStatus("Start the race", run);
    root.replaceChildren(element("div", { class: "live-buttons" }, button, kernelSwitch(desk)), ...lanes.map(({ box }) => box), status);
  };

  Live.cost = root => {
    const { desk } = Live;
    const table = element("div", { class: "live-costs" });
    const measured = new Map(); /* by whether the kernel is on: the milliseconds of a call with each number of tokens */

    const draw = () => {
      const most = Math.max(...[...measured.values()].flatMap(times => [...times.values()].map(time => time / times.get(1))));
      const column = (on, name) => element("div", { class: "live-column" }, element("p", {}, element("b", {}, name)),
        element("ul", { class: "live-bars" }, SIZES.map(size => {
          const time = measured.get(on)?.get(size), one = measured.get(on)?.get(1);
          return element("li", {}, element("span", { class: "live-name" }, size === 1 ? "1 token" : `${size} tokens`),
            element("span", { class: "live-pair", "aria-hidden": "true" }, element("span", { class: "live-bar live-target", style: `--size:${percent(time ? time / one / most : 0)};--more:0%` })),
            element("span", { class: "live-numbers" }, time ? `${ticked(time)} ms${size > 1 ? `, ×${(time / one).toFixed(1)}` : ""}` : "–"));
        })));
      table.replaceChildren(column(true, "With the kernel"), column(false, "Without it"));
    };

    const run = async say => {
      const models = await desk.ready(say);
      if (!models) { return; }
      const { target } = models, session = models.sessions.target[1], text = desk.tokenizer.encode("This is a story about Mia and Ben. Mia stood at the well.");
      say("Measuring …");
      for (const on of target.kernel ? [true, false] : [false]) {
        const times = new Map();
        measured.set(on, times);
        for (const size of SIZES) {
          const found = [];
          for (let i = 0; i < (on ? 15 : 4); i++) {
            target.useKernel = on;
            const start = performance.now();
            session.rows(text, size);
            found.push(performance.now() - start);
            desk.useKernel();
            await desk.pause();
          }
          times.set(size, Math.min(...found));
          draw();
        }
      }
      const factor = on => (measured.get(on).get(5) / measured.get(on).get(1)).toFixed(1);
      const without = `Without the kernel, it costs ${factor(false)} times as much.`;
      say(target.kernel ? `With the kernel, a call with 5 tokens costs ${factor(true)} times as much as a call with 1. ${without}` : without.replace("it", "a call with 5 tokens"));
    };

    const { button, status } = buttonAndStatus("Measure", run);
    root.replaceChildren(element("div", { class: "live-buttons" }, button), table, status);
    draw();
  };
})(globalThis.Live ??= {});
