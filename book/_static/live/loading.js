/* The models, loaded on the first click: fetched over HTTP; where a page may not fetch (opened from a file), as scripts in base64. */
(Live => {
  "use strict";
  const folder = document.currentScript.src.replace(/[^/]*$/, "");
  const waiting = {}; /* what to call when a script has brought a model's weights */
  let loading = null;

  Live.arrived = (name, text) => waiting[name](text);

  /* One model's file; `progress` is called with each number of bytes that has come in. */
  const fetched = async (name, progress) => {
    const response = await fetch(`${folder}${name}.safetensors`);
    if (!response.ok) { throw new Error(`the server answers ${response.status}`); }
    const parts = [], reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      progress(part.value.length);
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  };

  const fromScript = (name, progress) => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting[name] = text => {
      const bytes = Live.decodeBase64(text);
      progress(bytes.length);
      resolve(bytes);
    };
    script.onerror = () => reject(new Error(`${name}.js cannot be read`));
    script.onload = () => { script.remove(); reject(new Error(`${name}.js is damaged`)); }; /* too late, unless nothing arrived */
    script.src = `${folder}${name}.js`;
    document.head.append(script);
  });

  const bytesOf = async (name, progress) => {
    if (!location.protocol.startsWith("http")) { return fromScript(name, progress); }
    try { return await fetched(name, progress); } catch { return fromScript(name, progress); }
  };

  /* The models by name, ready; each is loaded once. Heads and networks become part of the target, because they compute with what it computed. After an
     error, the next call tries again. */
  Live.load = (names, progress) => loading ??= (async () => {
    let arrived = 0, failed = false;
    const count = bytes => { arrived += bytes; if (!failed) { progress(arrived); } };
    await Live.compileKernel();
    const files = Object.fromEntries(await Promise.all(names.map(async name => {
      const { bytes } = Live.VILLAGE.models[name], file = await bytesOf(name, count);
      if (file.length !== bytes) { throw new Error(`${name} has ${file.length} bytes, not ${bytes}`); }
      return [name, file];
    })).catch(error => { failed = true; throw error; }));
    const isModel = name => Boolean(Live.VILLAGE.models[name].config), parts = names.filter(name => !isModel(name)).map(name => files[name]);
    return Object.fromEntries(names.filter(isModel).map(name =>
      [name, new Live.Model(Live.VILLAGE.models[name].config, files[name], name === "target" ? parts : [])]));
  })().catch(error => { loading = null; throw error; });
})(globalThis.Live ??= {});
