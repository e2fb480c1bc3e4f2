"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
// What became of a line: [the badge, given how many; what it means].
const FATES = {
  break: [() => "break", "the graph ends here, Python goes on"],
  eager: [() => "eager", "runs without compiling"],
  graph: [(n) => plural(n, "node"), "nodes of captured graphs that this line made"],
  kernel: [(n) => plural(n, "kernel"), "generated kernels, forward and backward, that compute this line"],
  aten: [(n) => plural(n, "ATen call"), "calls of PyTorch's own kernels, forward and backward, for this line"],
  recomputed: [(n) => `${n} recomputed`, "values that backward computes again instead of keeping them"],
  saved: [(n) => `${n} saved`, "tensors kept for backward"],
};
const SIDES = ["captured", "joint", "forward", "backward"];
const state = { tab: "flow", entry: -1, line: "", graph: 0, side: "", node: -1, program: "", loop: "", kernel: -1, zoom: 1 };
const $ = (id) => document.getElementById(id);
const esc = (t) => String(t).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const bytes = (n) => (n < 1024 ? n + " bytes" : n < 1 << 20 ? (n / 1024).toFixed(1) + " KB" : (n / (1 << 20)).toFixed(1) + " MB");
const plural = (n, noun) => n + " " + (n === 1 ? noun : noun.endsWith("y") ? noun.slice(0, -1) + "ies" : noun + "s");
const place = (key) => { if (!key) return ""; const [f, l] = key.split(":"); return D.files[f].name + ":" + l; };
const lineLink = (key) => (key ? `<a class="jump" data-line="${key}">${esc(place(key))}</a>` : "");
const fullName = (g) => (D.graphs.length > 1 ? D.graphs[g].entry + ", " : "") + D.graphs[g].name;
const entries = () => D.functions.flatMap((f, n) => f.entries.map((e) => ({ ...e, function: f.name, n, last: f.entries.length - 1 })));
// One number chooses an entry of each function: that one, or the last of a function that has fewer; -1 chooses all.
const chosen = (e) => state.entry < 0 || e.index === Math.min(state.entry, e.last);
const shownEntries = () => entries().filter(chosen);
const shownGraphs = () => D.graphs.map((g, n) => [g, n]).filter(([g]) => chosen(g));
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
function fatesOf(key) {
  // {fate: {side: how many}} of a line, of the chosen entries and of what belongs to none
  const found = {}, of = D.marks[key] || {}, numbers = Object.keys(of).map(Number), last = Math.max(...numbers);
  for (const number of numbers) {
    if (number >= 0 && state.entry >= 0 && number !== Math.min(state.entry, last)) continue;
    for (const [fate, sides] of Object.entries(of[number])) for (const [side, n] of Object.entries(sides)) {
      found[fate] ||= {};
      found[fate][side] = (found[fate][side] || 0) + n;
    }
  }
  return found;
}

// --- colours of code ------------------------------------------------------------------------------------------------
const WORDS = {
  py: "False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield",
  c: "char const continue double else float for if inline int int32_t int64_t long restrict return short signed sizeof static struct uint8_t uint64_t unsigned void while",
};
const TOKENS = {
  py: /(#.*)|([rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(\b\d[\w.]*)|(\b[A-Za-z_]\w*)/g,
  c: /(\/\/.*|\/\*[^]*?(?:\*\/|$)|^[ \t]*#.*)|("(?:\\.|[^"\\\n])*"?)|(\b\d[\w.]*)|(\b[A-Za-z_]\w*)/gm,
};
const KEYWORDS = Object.fromEntries(Object.entries(WORDS).map(([language, words]) => [language, new Set(words.split(" "))]));
function coloured(text, language = "py") {
  let out = "", end = 0;
  for (const m of String(text).matchAll(TOKENS[language])) {
    const kind = m[1] ? "c" : m[2] ? "s" : m[3] ? "d" : KEYWORDS[language].has(m[4]) ? "k" : "";
    out += esc(text.slice(end, m.index)) + (kind ? `<b class="t${kind}">${esc(m[0])}</b>` : esc(m[0]));
    end = m.index + m[0].length;
  }
  return out + esc(text.slice(end));
}

// --- the user's source -------------------------------------------------------------------------------------------
function drawSource() {
  // the files with most of the work first; those that only guards read are folded away
  const most = Math.max(0, ...entries().map((e) => e.last));
  const choices = [[-1, "all entries"], ...Array.from({ length: most + 1 }, (_, n) => [n, "entry " + n])];
  const out = most ? [`<div class="entry">counts of <select id="entry" aria-label="Entry">` +
    choices.map(([n, text]) => `<option value="${n}"${n === state.entry ? " selected" : ""}>${text}</option>`).join("") + "</select></div>"] : [];
  const work = {};
  for (const key of Object.keys(D.marks)) work[key.split(":")[0]] = (work[key.split(":")[0]] || 0) + 1;
  const busy = (f) => work[f.file] || 0;
  const any = D.files.some(busy);
  for (const file of D.files.filter((f) => f.lines.length).sort((a, b) => busy(b) - busy(a))) {
    const folded = any && !busy(file);
    out.push(folded ? `<details><summary title="${esc(file.path)}">${esc(file.name)} <small>no operations, only read while capturing</small></summary>`
      : `<h2 title="${esc(file.path)}">${esc(file.name)}${any ? ` <small>${plural(busy(file), "line")} at work</small>` : ""}</h2>`);
    let before = 0;
    for (const [number, text] of file.lines) {
      if (before && number > before + 1) out.push('<div class="gap">⋯</div>');
      before = number;
      const key = file.file + ":" + number;
      const fates = fatesOf(key), kinds = Object.keys(FATES).filter((f) => fates[f]);
      const classes = kinds.map((f) => "f-" + f).join(" ") || "quiet";
      const told = kinds.map((f) => {
        const sides = Object.entries(fates[f]).filter(([side]) => side).map(([side, n]) => `${side} ${n}`).join(", ");
        return `${FATES[f][0](sum(Object.values(fates[f])))}${sides ? ` (${sides})` : ""}: ${FATES[f][1]}`;
      });
      // two at most: the rest, and what they mean, on hover
      const badges = kinds.slice(0, 2).map((f) => `<span class="badge ${f}">${FATES[f][0](sum(Object.values(fates[f])))}</span>`);
      if (kinds.length > 2) badges.push(`<span class="badge more">+${kinds.length - 2}</span>`);
      out.push(`<div class="ln ${classes}" id="L${key}" data-line="${key}" title="${esc(told.join("\n"))}"><i>${number}</i><code>${coloured(text)}</code>${badges.join("")}</div>`);
    }
    if (folded) out.push("</details>");
  }
  $("source").innerHTML = out.join("");
}

function selectLine(key, show = true) {
  document.querySelectorAll(".ln.sel").forEach((e) => e.classList.remove("sel"));
  state.line = key;
  const element = key && $("L" + key);
  if (element && element.closest("details")) element.closest("details").open = true;
  if (element) { element.classList.add("sel"); element.scrollIntoView({ block: "nearest" }); }
  if (show && key) openTab("line");
}

// --- tables that sort and filter -----------------------------------------------------------------------------------
function table(id, columns, rows) {
  // columns: [title, kind]; kinds: t text, m code, n number, l line key. rows: cells, optionally {go, cells, hit}
  tables[id] = { columns, rows: rows.map((r) => (Array.isArray(r) ? { cells: r } : r)), sort: -1, down: false, filter: "" };
  return `<input class="filter" type="search" data-table="${id}" placeholder="Filter ${plural(rows.length, "row")}" aria-label="Filter">` +
    `<div id="T${id}">${tableBody(id)}</div>`;
}
const tables = {};
function tableBody(id) {
  const t = tables[id];
  // A column that says the same in every row is said once, above.
  const same = t.columns.map((_, n) => t.rows.length > 1 && t.rows.every((r) => r.cells[n] === t.rows[0].cells[n]));
  const said = t.columns.map(([title, kind], n) => same[n] && t.rows[0].cells[n] !== "" ? `${title || "all"}: ${kind === "l" ? place(t.rows[0].cells[n]) : t.rows[0].cells[n]}` : "").filter(Boolean);
  const text = (r) => r.cells.map((c, n) => (t.columns[n][1] === "l" ? place(c) : c)).join(" ").toLowerCase();
  let rows = t.filter ? t.rows.filter((r) => text(r).includes(t.filter)) : t.rows.slice();
  if (t.sort >= 0) {
    const kind = t.columns[t.sort][1];
    const value = (r) => (kind === "l" ? r.cells[t.sort].split(":").map(Number) : r.cells[t.sort]);
    const order = (a, b) => kind === "n" ? a - b : kind === "l" ? (a[0] || 0) - (b[0] || 0) || (a[1] || 0) - (b[1] || 0) : String(a).localeCompare(String(b));
    rows.sort((a, b) => (t.down ? -1 : 1) * order(value(a), value(b)));
  }
  const head = t.columns.map(([title], n) => same[n] ? "" : `<th data-sort="${id}:${n}">${esc(title)}${t.sort === n ? (t.down ? " ▾" : " ▴") : ""}</th>`);
  const cell = (value, [, kind]) => kind === "l" ? `<td>${lineLink(value)}</td>` : `<td class="${kind}">${esc(value)}</td>`;
  const body = rows.map((r) => `<tr class="${r.go ? "go" : ""} ${r.hit ? "hit" : ""}"${r.go ? ` data-go="${r.go}"` : ""}>` +
    r.cells.map((c, n) => same[n] ? "" : cell(c, t.columns[n])).join("") + "</tr>");
  return (said.length ? `<p class="said">${esc(said.join(" · "))}</p>` : "") + `<table><thead><tr>${head.join("")}</tr></thead><tbody>${body.join("")}</tbody></table>`;
}

// --- panels ----------------------------------------------------------------------------------------------------------
const PANELS = {
  flow: ["Flow", () => `<div class="picture flow" title="Click a box to go there.">${$("flow").innerHTML}</div>`],
  line: ["Line", linePanel],
  graphs: ["Graphs", graphPanel],
  loops: ["Loops", loopPanel],
  kernels: ["Kernels", kernelPanel],
  code: ["Entry code", () => shownEntries().map((e) => `<h3 id="E${e.n}:${e.index}">${esc(e.function)}, entry ${e.index} <small>${esc(e.path)}transformed.py</small></h3><pre>${coloured(e.transformed)}</pre>`).join("") + D.functions.filter((f) => f.source).map((f) => `<h3>${esc(f.name)}, decompiled</h3><pre>${coloured(f.source)}</pre>`).join("")],
  guards: ["Guards", () => table("guards", [["entry", "t"], ["runs if", "m"], ["because", "t"], ["line", "l"]],
    shownEntries().flatMap((e) => e.guards.map(([c, w, l]) => [e.function + " " + e.index, c, w, l])))],
  breaks: ["Breaks", () => table("breaks", [["where", "t"], ["what", "t"], ["line", "l"], ["what to do", "t"]], [
    ...shownEntries().flatMap((e) => e.breaks.map(([r, l, h]) => [e.function + " entry " + e.index, "graph break: " + r, l, h])),
    ...D.functions.flatMap((f) => f.fallbacks.map(([r, l]) => [f.name, "runs eagerly: " + r, l, ""]))])],
  recompiles: ["Recompiles", () => table("recompiles", [["function", "t"], ["guard that failed", "m"], ["before", "m"], ["now", "m"], ["line", "l"], ["and so", "t"]],
    D.functions.flatMap((f) => f.recompiles.map((r) => [f.name, ...r])))],
  fusion: ["Fusion", () => table("fusion", [["graph", "t"], ["first", "m"], ["second", "m"], ["", "t"], ["rule", "t"], ["why", "t"], ["bytes saved", "n"]],
    shownGraphs().flatMap(([g, n]) => g.decisions.map(([a, b, f, r, w, s]) => [fullName(n), a, b, f ? "fused" : "kept apart", r, w, s])))],
  segments: ["Segments", segmentPanel],
  memory: ["Memory", memoryPanel],
  time: ["Time", timePanel],
};

function linePanel() {
  const key = state.line;
  if (!key) return '<p class="none">Click a line of the source.</p>';
  const [file, number] = key.split(":");
  const text = (D.files[file].lines.find(([n]) => n === Number(number)) || [0, ""])[1];
  const nodes = [], loops = [], kernels = [], saved = [];
  shownGraphs().forEach(([g, n]) => {
    for (const side of SIDES) (g.sides[side]?.nodes || []).forEach((node, i) => {
      if (node[5] === key) nodes.push({ go: `node:${n}:${side}:${i}`, cells: [fullName(n), side, node[2], node[3], side === "backward" && g.recomputed.includes(node[0]) ? "computed again" : ""] });
    });
    for (const [side, p] of Object.entries(g.programs)) {
      p.loops.forEach((l, i) => l[2].includes(key) && loops.push({ go: `loop:${n}:${side}:${i}`, cells: [fullName(n), side, l[0], l[3] < 0 ? "ATen call" : p.kernels[l[3]][0]] }));
      p.kernels.forEach((k, i) => k[4].includes(key) && kernels.push({ go: `kernel:${n}:${side}:${i}`, cells: [fullName(n), side, k[0], k[3].join(", "), k[5]] }));
    }
    g.saved.forEach((s) => s[4] === key && saved.push([fullName(n), s[0], s[1], s[2], s[3]]));
  });
  const guards = shownEntries().flatMap((e) => e.guards.filter((g) => g[2] === key).map(([c, w]) => [e.function + " " + e.index, c, w]));
  const breaks = shownEntries().flatMap((e) => e.breaks.filter((b) => b[1] === key).map(([r, , h]) => [e.function + " " + e.index, r, h]));
  const part = (title, id, columns, rows) => rows.length ? `<h3>${title}</h3>` + table(id, columns, rows) : "";
  const found = part("Graph breaks", "lb", [["entry", "t"], ["reason", "t"], ["what to do", "t"]], breaks) +
    part("Nodes", "ln", [["graph", "t"], ["stage", "t"], ["node", "m"], ["value", "m"], ["", "t"]], nodes) +
    part("Loops", "ll", [["graph", "t"], ["side", "t"], ["loop", "m"], ["in", "m"]], loops) +
    part("Kernels", "lk", [["graph", "t"], ["side", "t"], ["kernel", "m"], ["operations", "m"], ["calls", "n"]], kernels) +
    part("Saved for backward", "ls", [["graph", "t"], ["tensor", "m"], ["value", "m"], ["bytes", "n"], ["reason", "t"]], saved) +
    part("Guards it needed", "lg", [["entry", "t"], ["runs if", "m"], ["because", "t"]], guards);
  return `<h3>${esc(place(key))}</h3><pre>${coloured(text.trim())}</pre>` + (found || '<p class="none">No tensor operation, guard or break: plain Python, done while capturing.</p>');
}

function graphChooser(sides, current) {
  const options = D.graphs.map((g, n) => `<option value="${n}"${n === state.graph ? " selected" : ""}>${esc(fullName(n))}</option>`);
  return `<select id="graph" aria-label="Graph">${options.join("")}</select> ` + sides.map((s) => `<button data-side="${s}"${s === current ? ' style="font-weight:700"' : ""}>${s}</button>`).join(" ");
}

function graphPanel() {
  const g = D.graphs[state.graph];
  if (!g) return '<p class="none">No graph.</p>';
  const sides = SIDES.filter((s) => g.sides[s]);
  if (!sides.includes(state.side)) state.side = sides[0];
  const side = g.sides[state.side];
  const bar = `<div class="bar">${graphChooser(sides, state.side)}<button data-zoom="1.25">+</button><button data-zoom="0.8">−</button>` +
    `<span>${plural(side.nodes.length, "node")} · ${esc(g.path)}${state.side}.py</span></div>`;
  return bar + `<div class="picture" id="picture">${graphSvg(g, side)}</div><div id="detail">${nodeDetail()}</div>` +
    "<h3>Nodes</h3>" + table("nodes", [["#", "n"], ["node", "m"], ["value", "m"], ["line", "l"], ["file line", "n"]],
      side.nodes.map((n, i) => ({ go: `node:${state.graph}:${state.side}:${i}`, cells: [i, n[2], n[3], n[5], n[6]] })));
}

function graphSvg(g, side) {
  const H = 34, edges = [], boxes = [], again = new Set(state.side === "backward" ? g.recomputed : []);
  side.nodes.forEach((n, i) => {
    const [name, op, statement, shape, inputs, key, , x, y, w] = n;
    for (const j of inputs) {
      const s = side.nodes[j], x1 = s[7] + s[9] / 2, y1 = s[8] + H, x2 = x + w / 2, mid = (y1 + y) / 2;
      edges.push(`M${x1} ${y1}C${x1} ${mid} ${x2} ${mid} ${x2} ${y}`);
    }
    const classes = `node ${op}${again.has(name) ? " rec" : ""}${key && key === state.line ? " line" : ""}${i === state.node ? " sel" : ""}`;
    const call = /^\w+ = [\w.]+(?=\()/.exec(statement);
    const head = op === "placeholder" || op === "output" ? name : call ? call[0] : statement;
    boxes.push(`<g class="${classes}" data-node="${i}"><rect x="${x}" y="${y}" width="${w}" height="${H}" rx="4"/>` +
      `<text x="${x + 6}" y="${y + 14}">${esc(head.slice(0, 60))}</text><text x="${x + 6}" y="${y + 28}" fill="#666">${esc(shape.slice(0, 60))}</text></g>`);
  });
  const z = state.zoom;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${side.width * z}" height="${side.height * z}" viewBox="0 0 ${side.width} ${side.height}">` +
    `<path class="e" d="${edges.join("")}"/>${boxes.join("")}</svg>`;
}

function nodeDetail() {
  const g = D.graphs[state.graph], n = g.sides[state.side]?.nodes[state.node];
  if (!n) return '<p class="none">Click a node.</p>';
  const links = [];
  for (const [side, p] of Object.entries(g.programs)) {
    if (state.side !== side && state.side !== "captured" && state.side !== "joint") continue;
    p.loops.forEach((l, i) => {
      const own = state.side === "captured" ? l[2].includes(n[5]) : l[0] === n[0] || l[0].startsWith(n[0] + "_");
      if (own) links.push(`<a class="jump" data-go="loop:${state.graph}:${side}:${i}">${esc(l[0])}</a> in ` +
        (l[3] < 0 ? "an ATen call" : `<a class="jump" data-go="kernel:${state.graph}:${side}:${l[3]}">${side} ${esc(p.kernels[l[3]][0])}</a>`));
    });
  }
  return `<pre>${esc(n[2])}${n[3] ? "  # " + esc(n[3]) : ""}</pre><p>${lineLink(n[5])} · reads ${n[4].map((i) => esc(g.sides[state.side].nodes[i][0])).join(", ") || "nothing"}` +
    `${links.length ? "<br>loops: " + links.slice(0, 12).join("; ") : ""}</p>`;
}

function loopPanel() {
  const rows = [];
  shownGraphs().forEach(([g, n]) => Object.entries(g.programs).forEach(([side, p]) => p.loops.forEach((l, i) =>
    rows.push({ go: `loop:${n}:${side}:${i}`, hit: state.loop === `${n}:${side}:${i}`,
      cells: [fullName(n), side, l[0], l[3] < 0 ? "ATen call" : p.kernels[l[3]][0], l[2][0] || ""] }))));
  const [n, side, i] = state.loop.split(":");
  const loop = state.loop && D.graphs[n].programs[side].loops[i];
  const detail = loop ? `<h3>${esc(loop[0])}</h3><pre>${esc(loop[1])}</pre><p>lines: ${loop[2].map(lineLink).join(", ")}` +
    (loop[3] >= 0 ? ` · <a class="jump" data-go="kernel:${n}:${side}:${loop[3]}">${esc(D.graphs[n].programs[side].kernels[loop[3]][0])}</a>` : "") + "</p>" : "";
  return detail + table("loops", [["graph", "t"], ["side", "t"], ["loop", "m"], ["runs in", "m"], ["line", "l"]], rows);
}

function kernelPanel() {
  const rows = [];
  shownGraphs().forEach(([g, n]) => Object.entries(g.programs).forEach(([side, p]) => p.kernels.forEach((k, i) =>
    rows.push({ go: `kernel:${n}:${side}:${i}`, hit: state.kernel === `${n}:${side}:${i}`, cells: [fullName(n), side, k[0], k[3].join(", "), k[4].map(place).join(", "), k[5]] }))));
  const [n, side, i] = String(state.kernel).split(":");
  const k = side && D.graphs[n].programs[side].kernels[i];
  const wrapper = side && D.graphs[n].wrappers[side + "_wrapper.py"];
  const detail = k ? `<h3>${esc(side)} ${esc(k[0])} <small>${esc(D.graphs[n].path)}${esc(k[6])}</small></h3>` +
    `<p>lines: ${k[4].map(lineLink).join(", ")}<br>loops: ` + D.graphs[n].programs[side].loops.map((l, j) => [l, j]).filter(([l]) => l[3] === Number(i)).slice(0, 20)
      .map(([l, j]) => `<a class="jump" data-go="loop:${n}:${side}:${j}">${esc(l[0])}</a>`).join(", ") + (k[7] ? `<br>${esc(k[7])}` : "") + k[8].map(([other, why]) => `<br>not fused with ${esc(other)}: ${esc(why)}`).join("") +
      `</p><pre>${coloured(k[2], k[1] === "c" ? "c" : "py")}</pre>` +
    (wrapper ? `<details><summary>${side}_wrapper.py, which calls it</summary><pre>${coloured(wrapper)}</pre></details>` : "") : "";
  return detail + (rows.length ? table("kernels", [["graph", "t"], ["side", "t"], ["kernel", "m"], ["operations", "m"], ["lines", "t"], ["calls", "n"]], rows)
    : '<p class="none">This backend makes no kernels.</p>');
}

function memoryPanel() {
  const saved = shownGraphs().flatMap(([g, n]) => g.saved.map((s) => ({ alive: s[5], cells: [fullName(n), ...s.slice(0, 5)] })));
  const kept = saved.filter((r) => !r.alive), inputs = saved.filter((r) => r.alive);
  const total = sum(kept.map((r) => r.cells[3]));
  const peaks = shownGraphs().flatMap(([g, n]) => Object.entries(g.programs).map(([side, p]) => [fullName(n), side, p.peak, p.steps.filter((s) => s.includes("in place of")).length, p.steps.filter((s) => s.startsWith("allocate")).length]));
  const replays = shownGraphs().flatMap(([g, n]) => Object.entries(g.programs).filter(([, p]) => p.replays).map(([side, p]) => [fullName(n), side, p.replays]));
  return `<h3>Kept from forward to backward: ${plural(kept.length, "tensor")}, ${bytes(total)}${any(inputs) ? `; and ${plural(inputs.length, "input")}, alive anyway` : ""}</h3>` +
    table("saved", [["graph", "t"], ["tensor", "m"], ["value", "m"], ["bytes", "n"], ["reason", "t"], ["line", "l"]], [...kept, ...inputs]) +
    "<h3>Temporaries</h3>" + table("peaks", [["graph", "t"], ["side", "t"], ["peak bytes", "n"], ["memory reused", "n"], ["allocated", "n"]], peaks) +
    (any(replays) ? "<h3>CUDA graphs</h3>" + table("replays", [["graph", "t"], ["side", "t"], ["what became of it", "t"]], replays) : "");
}

function segmentPanel() {
  // Rows hold four cells, and the seconds from and to which the segment ran in the last backward, null where none has.
  const tracks = shownGraphs().filter(([g]) => any(g.segments)).map(([g, n]) => {
    const total = Math.max(...g.segments.map(([, , , , , to]) => to || 0));
    return `<div>${esc(fullName(n))}</div>` + (total ? '<div class="track">' + g.segments.map(([side, gives, , , from, to]) => to === null ? "" :
      `<span title="${esc(side)}: ${esc(gives)}" style="left:${(from / total) * 100}%;width:${((to - from) / total) * 100}%;background:hsl(210 60% 80%)">${esc(side.split("_").pop())}</span>`).join("") + "</div>" : "");
  });
  const rows = shownGraphs().flatMap(([g, n]) => g.segments.map((row) => [fullName(n), ...row.slice(0, 4)]));
  return tracks.join("") + table("segments", [["graph", "t"], ["segment", "m"], ["then there are the gradients of", "t"], ["ready after", "t"], ["meanwhile", "t"]], rows);
}

function timePanel() {
  const all = entries().filter((e) => e.events.length);
  if (!all.length) return '<p class="none">Nothing was compiled.</p>';
  const begin = Math.min(...all.flatMap((e) => e.events.map((v) => v[1])));
  const compiling = all.flatMap((e) => e.events).map((v) => [v[1] - begin, v[2]]).sort((a, b) => a[0] - b[0]);
  // Long stretches in which nothing compiled (the program ran) are cut out.
  const cuts = []; let end = 0;
  for (const [b, s] of compiling) { if (b - end > 0.5) cuts.push([end, b - end - 0.1]); end = Math.max(end, b + s); }
  const at = (t) => t - cuts.filter(([c]) => c < t).reduce((sum, [, d]) => sum + d, 0);
  const total = at(end), colors = {};
  const color = (stage) => colors[stage] ||= `hsl(${(Object.keys(colors).length * 67) % 360} 60% 78%)`;
  const tracks = all.map((e) => `<div>${esc(e.function)}, entry ${e.index}</div><div class="track">` + e.events.map(([stage, b, s]) =>
    `<span title="${esc(stage)}: ${(s * 1e3).toFixed(1)} ms" style="left:${(at(b - begin) / total) * 100}%;width:${(s / total) * 100}%;background:${color(stage)}">${esc(stage)}</span>`).join("") + "</div>");
  const sums = {};
  all.forEach((e) => e.events.forEach(([stage, , s]) => (sums[stage] = (sums[stage] || 0) + s)));
  return tracks.join("") + `<h3>Seconds by stage</h3>` + table("stages", [["stage", "t"], ["seconds", "n"]], Object.entries(sums).map(([s, v]) => [s, Number(v.toFixed(4))]));
}

// Whether a tab has anything to show; those that have not are greyed.
const any = (list) => list.length > 0;
const someProgram = (what) => D.graphs.some((g) => Object.values(g.programs).some((p) => any(p[what])));
const HAS = {
  flow: () => true, line: () => state.line !== "", graphs: () => any(D.graphs), loops: () => someProgram("loops"),
  kernels: () => someProgram("kernels"), code: () => any(entries()), guards: () => entries().some((e) => any(e.guards)),
  breaks: () => entries().some((e) => any(e.breaks)) || D.functions.some((f) => any(f.fallbacks)),
  recompiles: () => D.functions.some((f) => any(f.recompiles)), fusion: () => D.graphs.some((g) => any(g.decisions)),
  segments: () => D.graphs.some((g) => any(g.segments)),
  memory: () => someProgram("steps") || D.graphs.some((g) => any(g.saved)), time: () => entries().some((e) => any(e.events)),
};

function chooseEntry(number) {
  state.entry = number;
  drawSource();
  selectLine(state.line, false);
}

// --- going about -----------------------------------------------------------------------------------------------------
function openTab(tab) {
  state.tab = tab;
  $("tabs").innerHTML = Object.entries(PANELS).map(([t, [title]]) => `<button data-tab="${t}" class="${t === tab ? "on" : ""}${HAS[t]() ? "" : " empty"}">${title}</button>`).join("");
  $("panel").innerHTML = PANELS[tab][1]();
  $("panel").scrollTop = 0;
}

function go(where) {
  const [kind, ...rest] = where.split(":");
  const [n, side, i] = rest;
  if (kind === "tab") return openTab(n);
  if (kind === "function") { selectLine(D.functions[n].line, false); return openTab("code"); }
  if (kind === "entry") { if (state.entry >= 0) chooseEntry(Number(side)); openTab("code"); $(`E${n}:${side}`)?.scrollIntoView(); return; }
  if (kind === "line") return selectLine(rest.join(":"));
  state.graph = Number(n);
  if (!chosen(D.graphs[n])) chooseEntry(D.graphs[n].index);
  if (kind === "graph") { state.node = -1; return openTab("graphs"); }
  if (kind === "node") {
    state.side = side; state.node = Number(i);
    selectLine(D.graphs[n].sides[side].nodes[i][5], false);
    openTab("graphs");
    const box = document.querySelector("#picture .node.sel");
    if (box) { const p = $("picture"), r = D.graphs[n].sides[side].nodes[i]; p.scrollTo((r[7] + r[9] / 2) * state.zoom - p.clientWidth / 2, r[8] * state.zoom - p.clientHeight / 2); }
    return;
  }
  if (kind === "loop") { state.loop = rest.join(":"); selectLine(D.graphs[n].programs[side].loops[i][2][0] || "", false); return openTab("loops"); }
  if (kind === "kernel") { state.kernel = rest.join(":"); selectLine(D.graphs[n].programs[side].kernels[i][4][0] || "", false); return openTab("kernels"); }
}

function search(text) {
  const found = [], wanted = text.toLowerCase(), limit = 60;
  const add = (kind, label, where) => { if (found.length < limit && label.toLowerCase().includes(wanted)) found.push([kind, label, where]); };
  if (wanted) {
    D.files.forEach((f) => f.lines.forEach(([n, t]) => add("line", `${f.name}:${n} ${t.trim()}`, `line:${f.file}:${n}`)));
    D.graphs.forEach((g, n) => {
      Object.entries(g.programs).forEach(([side, p]) => p.kernels.forEach((k, i) => add("kernel", `${side} ${k[0]}: ${k[3].join(", ")}`, `kernel:${n}:${side}:${i}`)));
      for (const side of SIDES) (g.sides[side]?.nodes || []).forEach((node, i) => add("node", `${side} ${node[2]}`, `node:${n}:${side}:${i}`));
    });
    entries().forEach((e) => e.guards.forEach((g) => add("guard", g[0], "tab:guards")));
  }
  $("found").innerHTML = found.map(([kind, label, where]) => `<div data-go="${where}"><b>${kind}</b>${esc(label)}</div>`).join("");
}

document.addEventListener("click", (event) => {
  const at = (name) => event.target.closest(`[data-${name}]`)?.dataset[name];
  if (!event.target.closest("#found, #search")) $("found").innerHTML = "";
  if (at("sort")) {
    const [id, column] = at("sort").split(":"), t = tables[id];
    t.down = t.sort === Number(column) && !t.down; t.sort = Number(column);
    $("T" + id).innerHTML = tableBody(id);
  } else if (at("tab")) openTab(at("tab"));
  else if (at("line")) selectLine(at("line"));
  else if (at("go")) { go(at("go")); $("found").innerHTML = ""; }
  else if (at("node")) go(`node:${state.graph}:${state.side}:${at("node")}`);
  else if (at("side")) { state.side = at("side"); state.node = -1; openTab("graphs"); }
  else if (at("zoom")) { state.zoom *= Number(at("zoom")); openTab("graphs"); }
});
document.addEventListener("input", (event) => {
  if (event.target.id === "search") return search(event.target.value);
  const id = event.target.dataset.table;
  if (id) { tables[id].filter = event.target.value.toLowerCase(); $("T" + id).innerHTML = tableBody(id); }
});
document.addEventListener("change", (event) => {
  if (event.target.id === "entry") { chooseEntry(Number(event.target.value)); return openTab(state.tab); }
  if (event.target.id === "graph") { state.graph = Number(event.target.value); state.node = -1; openTab("graphs"); }
});

const every = entries();
$("summary").textContent = [D.place, plural(every.length, "entry"), plural(D.graphs.length, "graph"),
  plural(every.reduce((n, e) => n + e.breaks.length, 0), "graph break"),
  plural(D.graphs.reduce((n, g) => n + Object.values(g.programs).reduce((m, p) => m + p.kernels.length, 0), 0), "kernel")].filter(Boolean).join(" · ");
state.entry = Math.max(...every.map((e) => e.last), 0) > 0 ? 0 : -1;
drawSource();
openTab("flow");
