/* Turns the static listing of a trace into a player. Safe to run again and again: a player that is already running is left alone. */
(() => {
  "use strict";
  const ICONS = {
    first: "M3 3h2v10H3zM13 3v10L6 8z",
    previous: "M11 3v10L4 8z",
    play: "M4 2.5v11L13 8z",
    pause: "M4 3h3v10H4zM9 3h3v10H9z",
    next: "M5 3v10l7-5z",
    last: "M11 3h2v10h-2zM3 3v10l7-5z"
  };

  const element = (tag, className, attributes) => {
    const node = document.createElement(tag);
    node.className = className;
    for (const name in attributes) { node.setAttribute(name, attributes[name]); }
    return node;
  };

  const setIcon = (button, name, label) => {
    button.innerHTML = '<svg viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d="' + ICONS[name] + '"/></svg>';
    button.setAttribute("aria-label", label);
    button.title = label;
  };

  const start = root => {
    const all = selector => [...root.querySelectorAll(selector)];
    if (root.tutorlibPlayer) { return; }
    root.tutorlibPlayer = true;
    all(".tl-controls, .tl-say").forEach(old => old.remove());
    all("details").forEach(folded => folded.replaceWith(...folded.querySelectorAll(".tl-step")));
    const steps = all(".tl-step"), words = all(".tl-text > span:not(.tl-prompt)"), [text] = all(".tl-text"), [stage] = all(".tl-stage");
    if (!steps.length) { return; }
    const kind = token => token.title.split(",")[0];
    all("b[title] > i").forEach(mark => { mark.setAttribute("role", "img"); mark.setAttribute("aria-label", kind(mark.parentNode)); });
    let now = 0, timer = null;
    const buttons = {};
    const controls = element("div", "tl-controls", { role: "toolbar", "aria-label": "Steps of the trace" });
    const slider = element("input", "tl-slider", { type: "range", min: 1, max: steps.length, step: 1, value: 1, "aria-label": "Step" });
    const count = element("span", "tl-count");
    const say = element("p", "tl-say", { "aria-live": "polite" });

    const add = (name, label, act) => {
      const button = buttons[name] = element("button", "tl-" + name, { type: "button" });
      setIcon(button, name, label);
      button.addEventListener("click", act);
      controls.append(button);
    };

    const stop = () => {
      clearInterval(timer);
      timer = null;
      setIcon(buttons.play, "play", "Play");
    };

    /* what a screen reader says of a step */
    const told = step => {
      const added = [...step.querySelectorAll(".tl-added b")].map(token => token.lastChild.textContent + " " + kind(token));
      const calls = step.querySelector(".tl-calls");
      return "Step " + (now + 1) + " of " + steps.length + ": adds " + (added.join(", ") || "no token") + "." + (calls ? " " + calls.textContent + "." : "");
    };

    const go = (index, quiet) => {
      now = Math.max(0, Math.min(steps.length - 1, index));
      steps.forEach((step, i) => step.classList.toggle("tl-now", i === now));
      words.forEach((word, i) => {
        word.classList.toggle("tl-later", i > now);
        word.classList.toggle("tl-now", i === now);
        if (i > now) { word.setAttribute("aria-hidden", "true"); } else { word.removeAttribute("aria-hidden"); }
      });
      slider.value = now + 1;
      slider.setAttribute("aria-valuetext", "step " + (now + 1) + " of " + steps.length);
      count.textContent = (now + 1) + " / " + steps.length;
      /* aria-disabled, not disabled: a button that is switched off under the reader's finger would lose the keyboard focus */
      for (const name of ["first", "previous"]) { buttons[name].setAttribute("aria-disabled", now === 0); }
      for (const name of ["next", "last"]) { buttons[name].setAttribute("aria-disabled", now === steps.length - 1); }
      stage.style.minHeight = Math.max(parseFloat(stage.style.minHeight) || 0, stage.offsetHeight) + "px";
      const current = words[now].lastElementChild;
      if (current) {  /* keep the newest words in sight without moving the page */
        const [word, box] = [current, text].map(part => part.getBoundingClientRect());
        if (word.bottom > box.bottom - 8) { text.scrollTop += word.bottom - box.bottom + 8; } else if (word.top < box.top + 8) { text.scrollTop += word.top - box.top - 8; }
      }
      if (!quiet) { say.textContent = told(steps[now]); }
    };

    const move = index => { stop(); go(index); };

    const play = () => {
      if (timer !== null) { stop(); return; }
      if (now === steps.length - 1) { go(0); }
      setIcon(buttons.play, "pause", "Pause");
      timer = setInterval(() => {
        if (!document.contains(root)) { clearInterval(timer); return; }
        go(now + 1);
        if (now === steps.length - 1) { stop(); }
      }, 900);
    };

    const acts = { ArrowRight: () => move(now + 1), ArrowLeft: () => move(now - 1), Home: () => move(0), End: () => move(steps.length - 1), " ": play };
    add("first", "First step", acts.Home);
    add("previous", "Previous step", acts.ArrowLeft);
    add("play", "Play", play);
    add("next", "Next step", acts.ArrowRight);
    add("last", "Last step", acts.End);
    slider.addEventListener("input", () => move(Number(slider.value) - 1));
    controls.append(slider, count);
    text.before(controls);
    root.append(say);
    [text, ...all(".tl-tree")].forEach(part => { part.tabIndex = 0; });  /* what scrolls can be reached with the keyboard */
    root.tabIndex = 0;
    root.addEventListener("keydown", event => {
      if (event.altKey || event.ctrlKey || event.metaKey || !acts[event.key] || (event.key === " " && event.target !== root)) { return; }
      acts[event.key]();
      event.preventDefault();
      event.stopPropagation();  /* the book's theme turns the page on arrow keys */
    });
    window.addEventListener("resize", () => { stage.style.minHeight = ""; });
    root.classList.add("tl-live");
    go(0, true);
  };

  document.querySelectorAll(".tl-player").forEach(start);
})();
