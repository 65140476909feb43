/* What parts of a live page begin with: a prompt to type, and buttons that do one step, play, and start again. */
(Live => {
  "use strict";
  const { element } = Live.draw;
  const EXAMPLES = {
    "two friends": "This is a story about Mia and Ben.",
    "a question": "This is a story about Mia and Ben. Mia stood at the well and felt proud. Ben waited at the mill. The red kite was with Mia. "
      + "Mia gave the red kite to Ben. \"Who has the red kite?\" asked the baker.",
    "no prompt": ""
  };
  const BEAT = 700; /* milliseconds a step, when the page plays by itself */

  /* {elements, update}: the box, with what the reader should know of the prompt; more: how many tokens it must leave room for */
  Live.promptBox = (more = 1) => {
    const { desk } = Live;
    const box = element("textarea", { rows: 2, spellcheck: "false", oninput: () => desk.change("prompt", box.value) });
    const note = element("p", { class: "live-note" });
    const examples = Object.entries(EXAMPLES).map(([name, text]) => element("button", { type: "button", class: "live-link", onclick: () => {
      box.value = text;
      desk.change("prompt", text);
    } }, name));
    const update = () => {
      const { problem, note: words } = desk.read(more);
      note.textContent = problem ?? words;
      note.classList.toggle("live-bad", Boolean(problem));
    };
    box.value = desk.prompt;
    return { update, elements: [
      element("label", { class: "live-ask" }, element("span", {}, "The beginning of a story. Change it as you like."), box),
      element("p", { class: "live-note" }, note, element("span", {}, "Try: ", examples.flatMap((button, i) => (i ? [" · ", button] : [button]))))] };
  };

  /* The buttons and what is said below them. step(say): does one step, and returns whether there may be another. */
  Live.controls = ({ label, step, restart }) => {
    let busy = false, playing = false;
    const status = element("p", { class: "live-status", role: "status" });
    const say = (words, bad = false) => {
      status.textContent = words;
      status.classList.toggle("live-bad", bad);
    };
    const name = () => { playButton.textContent = playing ? "Pause" : "Play"; };
    const next = async () => {
      if (busy) { return; }
      busy = true;
      try {
        if (!await step(say)) { playing = false; }
      } catch (error) {
        playing = false;
        say(`Something went wrong: ${error.message}`, true);
      } finally {
        busy = false;
        name();
      }
    };
    const play = async () => {
      playing = !playing;
      name();
      while (playing) {
        await next();
        if (playing) { await new Promise(resolve => setTimeout(resolve, BEAT)); }
      }
    };
    const stop = () => {
      playing = false;
      say("");
      name();
    };
    const playButton = element("button", { type: "button", onclick: play }, "Play");
    const buttons = element("div", { class: "live-buttons" }, element("button", { type: "button", class: "live-main", onclick: next }, label), playButton,
      element("button", { type: "button", onclick: restart }, "Start again"));
    return { buttons, status, stop };
  };

  /* What stands there before the first press. */
  Live.welcome = label => element("p", { class: "live-welcome" }, "Press ", element("b", {}, label), ` to begin. The first press loads ${Live.desk.loads} `
    + `(${Live.desk.megabytes} MB). ${Live.desk.loads === "the model" ? "It then runs" : "They then run"} on your own machine, without a server.`);
})(globalThis.Live ??= {});
