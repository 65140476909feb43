/* What the parts of a live page share: the prompt and the settings, the models, the words for what goes wrong. It starts every part. */
(Live => {
  "use strict";
  const { element } = Live.draw;
  const tokenizer = new Live.Tokenizer(Live.VILLAGE);
  const NEEDS = { beams: ["target"], heads: ["target", "medusa"], eagle: ["target", "eagle"] }; /* which models a part runs; the others run both */
  const roots = [...document.querySelectorAll("[data-live]")];

  const desk = Live.desk = {
    tokenizer,
    prompt: "This is a story about Mia and Ben.",
    method: "speculative", temperature: 0.8, topP: 1, gamma: 4, seed: 2, beams: 3, guesses: 5,
    needs: [...new Set(roots.flatMap(root => NEEDS[root.dataset.live] ?? ["target", "draft"]))],
    models: null,
    kernel: true,
    changed: new EventTarget() /* "prompt" when the text to be continued is another one, "settings", "kernel" */
  };

  /* A page may begin with other settings: <div data-live="steps" data-temperature="0" data-method="plain"> */
  for (const { dataset } of roots) {
    for (const name of ["prompt", "method"]) { desk[name] = dataset[name] ?? desk[name]; }
    for (const name of ["temperature", "topP", "gamma", "seed", "beams"]) { if (name in dataset) { desk[name] = Number(dataset[name]); } }
  }

  desk.change = (name, value) => {
    if (desk[name] === value) { return; }
    desk[name] = value;
    desk.changed.dispatchEvent(new Event(name === "prompt" || name === "seed" ? "prompt" : name === "kernel" ? "kernel" : "settings"));
  };

  /* The prompt's tokens; why it cannot be continued by at least `more` of them; what the reader should know of it. */
  desk.read = (more = 1) => {
    const tokens = tokenizer.encode(desk.prompt), most = Live.VILLAGE.models.target.config.max_position_embeddings;
    const strange = [...new Set(desk.prompt)].filter(letter => !Live.VILLAGE.letters.includes(letter));
    let problem = null, note = `${tokens.length} tokens`;
    if (tokens.length + more > most) {
      problem = `This prompt has ${tokens.length} tokens. The models can read ${most}, and need room for at least ${more === 1 ? "one" : more} more. Shorten it.`;
    } else if (!desk.prompt.trim()) {
      note = "The prompt is empty, so the target begins a story of its own.";
    } else if (strange.length) {
      const shown = strange.slice(0, 4).map(letter => (letter === "\n" ? "a line break" : `“${letter}”`)).join(", ");
      note = `${tokens.length} tokens. The models have never read ${shown}${strange.length > 4 ? " and others" : ""}: what follows may be nonsense.`;
    }
    return { tokens, problem, note };
  };

  desk.rng = () => (desk.temperature === 0 ? new Live.Greedy() : new Live.Seeded(desk.seed));
  desk.warp = () => ({ temperature: desk.temperature, topP: desk.topP });

  /* What the first press loads, in words. */
  desk.loads = { "target,draft": "the two models", target: "the model", "target,medusa": "the model and its heads", "target,eagle": "the model and the network" }[desk.needs] ?? "the models";
  desk.megabytes = (desk.needs.reduce((sum, name) => sum + Live.VILLAGE.models[name].bytes, 0) / 1e6).toFixed(0);

  /* The models, loaded if need be; `say` is told what is going on. Returns null, and has said why, if they do not come. */
  desk.ready = async say => {
    if (desk.models) { return desk.models; }
    say(`Loading ${desk.loads} (${desk.megabytes} MB) …`);
    try {
      const models = await Live.load(desk.needs, arrived => say(`Loading ${desk.loads}: ${(arrived / 1e6).toFixed(0)} of ${desk.megabytes} MB …`));
      if (!desk.models) {
        const sessions = Object.entries(models).map(([name, model]) => [name, Array.from({ length: 3 }, () => model.session())]);
        desk.models = { ...models, sessions: Object.fromEntries(sessions) };
        if (!models.target.kernel) { desk.change("kernel", false); }
        desk.useKernel();
      }
      say("");
      return desk.models;
    } catch (error) {
      say(`The weights did not arrive (${error.message}). Press the button to try again.`, true);
      return null;
    }
  };

  desk.useKernel = () => {
    for (const model of [desk.models?.target, desk.models?.draft]) {
      if (model) { model.useKernel = desk.kernel && Boolean(model.kernel); }
    }
  };
  desk.changed.addEventListener("kernel", desk.useKernel);

  /* Lets the page draw and answer clicks, without the wait of four milliseconds that a timer has. */
  desk.pause = () => new Promise(resolve => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });

  /* Reads a long text in small parts, so that the page stays alive. */
  desk.warm = async (session, text) => {
    for (let end = 8; end < text.length; end += 8) {
      session.rows(text.slice(0, end));
      await desk.pause();
    }
  };

  /* A token as it is shown in a box, and in running text. */
  desk.label = token => (tokenizer.special.has(token) ? tokenizer.vocab[token] : tokenizer.decode([token]).replaceAll(" ", "␣").replaceAll("\n", "↵")) || "∅";
  desk.flowing = token => (tokenizer.special.has(token) ? " ■ " : tokenizer.decode([token]));

  /* A slider with its name and its value; `shown` writes the value. */
  desk.slider = (name, label, range, shown) => {
    const output = element("b", {}, shown(desk[name]));
    const input = element("input", { type: "range", ...range, value: desk[name], "aria-valuetext": shown(desk[name]), oninput: () => {
      desk.change(name, Number(input.value));
      output.textContent = shown(desk[name]);
      input.setAttribute("aria-valuetext", shown(desk[name]));
    } });
    return element("label", { class: "live-slider" }, element("span", {}, label, " ", output), input);
  };

  const parts = { steps: Live.steps, race: Live.race, cost: Live.cost, game: Live.game, beams: Live.beams, heads: Live.heads, eagle: Live.network };
  roots.forEach(root => {
    try { parts[root.dataset.live](root); } catch (error) { root.replaceChildren(element("p", {}, `This part does not work in your browser: ${error.message}`)); }
  });
})(globalThis.Live ??= {});
