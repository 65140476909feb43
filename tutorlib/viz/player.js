/* Turns the static listing of a trace into a player. Safe to run again and again: a player that is already running is left alone. */
(function () {
  "use strict";
  var ICONS = {
    first: "M3 3h2v10H3zM13 3v10L6 8z",
    previous: "M11 3v10L4 8z",
    play: "M4 2.5v11L13 8z",
    pause: "M4 3h3v10H4zM9 3h3v10H9z",
    next: "M5 3v10l7-5z",
    last: "M11 3h2v10h-2zM3 3v10l7-5z"
  };

  function element(tag, className, attributes) {
    var node = document.createElement(tag);
    node.className = className;
    Object.keys(attributes || {}).forEach(function (name) { node.setAttribute(name, attributes[name]); });
    return node;
  }

  function setIcon(button, name, label) {
    button.innerHTML = '<svg viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d="' + ICONS[name] + '"/></svg>';
    button.setAttribute("aria-label", label);
    button.title = label;
  }

  function start(root) {
    if (root.tutorlibPlayer) { return; }
    root.tutorlibPlayer = true;
    Array.prototype.forEach.call(root.querySelectorAll(".tl-controls, .tl-say"), function (old) { old.remove(); });
    var steps = Array.prototype.slice.call(root.querySelectorAll(".tl-step"));
    var words = Array.prototype.slice.call(root.querySelectorAll(".tl-t"));
    var text = root.querySelector(".tl-text");
    var stage = root.querySelector(".tl-stage");
    if (!steps.length) { return; }
    var now = 0, timer = null, buttons = {};
    var controls = element("div", "tl-controls", { role: "toolbar", "aria-label": "Steps of the trace" });
    var slider = element("input", "tl-slider", { type: "range", min: 1, max: steps.length, step: 1, value: 1, "aria-label": "Step" });
    var count = element("span", "tl-count");
    var say = element("p", "tl-say", { "aria-live": "polite" });

    function add(name, label, act) {
      var button = element("button", "tl-" + name, { type: "button" });
      setIcon(button, name, label);
      button.addEventListener("click", act);
      buttons[name] = button;
      controls.appendChild(button);
    }

    function stop() {
      window.clearInterval(timer);
      timer = null;
      setIcon(buttons.play, "play", "Play");
    }

    function go(index, quiet) {
      now = Math.max(0, Math.min(steps.length - 1, index));
      steps.forEach(function (step, i) { step.classList.toggle("tl-now", i === now); });
      words.forEach(function (word) {
        var at = Number(word.getAttribute("data-step"));
        word.classList.toggle("tl-later", at > now);
        word.classList.toggle("tl-now", at === now);
        if (at > now) { word.setAttribute("aria-hidden", "true"); } else { word.removeAttribute("aria-hidden"); }
      });
      slider.value = now + 1;
      slider.setAttribute("aria-valuetext", "step " + (now + 1) + " of " + steps.length);
      count.textContent = (now + 1) + " / " + steps.length;
      /* aria-disabled, not disabled: a button that is switched off under the reader's finger would lose the keyboard focus */
      ["first", "previous"].forEach(function (name) { buttons[name].setAttribute("aria-disabled", now === 0); });
      ["next", "last"].forEach(function (name) { buttons[name].setAttribute("aria-disabled", now === steps.length - 1); });
      stage.style.minHeight = Math.max(parseFloat(stage.style.minHeight) || 0, stage.offsetHeight) + "px";
      var current = words.filter(function (word) { return word.classList.contains("tl-now"); }).pop();
      if (current) {  /* keep the newest words in sight without moving the page */
        var below = current.getBoundingClientRect().bottom - text.getBoundingClientRect().bottom + 8;
        var above = current.getBoundingClientRect().top - text.getBoundingClientRect().top - 8;
        if (below > 0) { text.scrollTop += below; } else if (above < 0) { text.scrollTop += above; }
      }
      if (!quiet) { say.textContent = steps[now].getAttribute("data-say"); }
    }

    function move(index) { stop(); go(index); }

    function play() {
      if (timer !== null) { stop(); return; }
      if (now === steps.length - 1) { go(0); }
      setIcon(buttons.play, "pause", "Pause");
      timer = window.setInterval(function () {
        if (!document.contains(root)) { window.clearInterval(timer); return; }
        go(now + 1);
        if (now === steps.length - 1) { stop(); }
      }, 900);
    }

    add("first", "First step", function () { move(0); });
    add("previous", "Previous step", function () { move(now - 1); });
    add("play", "Play", play);
    add("next", "Next step", function () { move(now + 1); });
    add("last", "Last step", function () { move(steps.length - 1); });
    slider.addEventListener("input", function () { move(Number(slider.value) - 1); });
    controls.appendChild(slider);
    controls.appendChild(count);
    root.insertBefore(controls, text);
    root.appendChild(say);
    root.tabIndex = 0;
    root.addEventListener("keydown", function (event) {
      if (event.altKey || event.ctrlKey || event.metaKey) { return; }
      var acts = {
        ArrowRight: function () { move(now + 1); }, ArrowLeft: function () { move(now - 1); },
        Home: function () { move(0); }, End: function () { move(steps.length - 1); }, " ": play
      };
      if (!acts[event.key] || (event.key === " " && event.target !== root)) { return; }
      acts[event.key]();
      event.preventDefault();
      event.stopPropagation();  /* the book's theme turns the page on arrow keys */
    });
    window.addEventListener("resize", function () { stage.style.minHeight = ""; });
    root.classList.add("tl-live");
    go(0, true);
  }

  Array.prototype.forEach.call(document.querySelectorAll(".tl-player"), start);
}());
