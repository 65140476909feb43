/* A tree on the live page. Not here: how its nodes look (beams.js, rounds.js). */
(Live => {
  "use strict";
  const { element } = Live.draw;

  /* The nodes {parent, …} below `top`, the text so far, as nested lists; what has no fork is one line. shown(line): what is shown
     of the nodes of a line. */
  Live.draw.tree = (nodes, top, shown) => {
    const below = parent => nodes.filter(node => node.parent === parent);
    const item = first => {
      const line = [first];
      for (let next = below(first); next.length === 1; next = below(next[0])) { line.push(next[0]); }
      const begin = first === top && element("span", { class: "live-sum" }, "the text …");
      return element("li", {}, begin, shown(line.filter(node => node !== top)), list(below(line.at(-1))));
    };
    const list = forks => forks.length > 0 && element("ul", {}, forks.map(item));
    return element("div", { class: "live-tree", tabindex: "0", role: "group", "aria-label": "The tree" }, list([top]));
  };
})(globalThis.Live ??= {});
