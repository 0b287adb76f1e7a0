// The data, and how figures are written.
const D = JSON.parse(document.getElementById('data').textContent);
const lineOf = (i) => (i === null ? '… (left out, the page has no room for it)' : D.texts[i]);
const textOf = (i) => (i === undefined ? undefined : lineOf(i));

function figure(v, units, step) {
  let u = 0;
  while (v >= step && u + 1 < units.length) {
    v /= step;
    ++u;
  }
  return (v >= 100 || Number.isInteger(v) ? v.toFixed(0) : v.toPrecision(3)) + ' ' + units[u];
}
const bytes = (v) => figure(v, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
const flops = (v) => figure(v, ['flop', 'kflop', 'Mflop', 'Gflop', 'Tflop'], 1000);
const time = (ns) => (ns === null ? 'never' : figure(ns, ['ns', 'us', 'ms', 's'], 1000));
const percent = (v) => (100 * v).toFixed(v < 0.1 ? 1 : 0) + ' %';

// Times of kernels: what the run measured, or what the prices of the machine say of the bytes and the work.
for (const k of D.kernels) {
  k.model = Math.max(k.bytes_moved * D.roof.ps_per_byte, k.flops * D.roof.ps_per_flop) / 1000;
  k.least = Math.max(k.bytes_unavoidable * D.roof.ps_per_byte, k.flops * D.roof.ps_per_flop) / 1000;
  const runs = D.timeline.filter((e) => e.direction === k.direction && e.kernel === k.name);
  k.measured = runs.length ? runs.reduce((sum, e) => sum + e.ns, 0) / runs.length : null;
  k.ns = k.measured === null ? k.model : k.measured;
  k.share = k.ns > 0 ? k.least / k.ns : 1;
}
// Who reads what, and which elements: "@" stands for the producer's name.
D.edges = [];
for (const n of D.nodes)
  for (const [pattern, ...steps] of n.reads || []) {
    let from = 0;
    for (const step of steps) D.edges.push({from: from += step, to: n.id, pattern});
  }
for (const n of D.nodes) {
  n.reads = [];
  n.readers = [];
}
for (const e of D.edges) {
  D.nodes[e.to].reads.push(e);
  D.nodes[e.from].readers.push(e);
}
for (const v of D.stash.values)
  if (v.node !== undefined) D.nodes[v.node].price = v;

// element(tag, attributes, children...): attributes that are functions are listeners.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function')
      made.addEventListener(name, value);
    else if (value !== undefined && value !== false)
      made.setAttribute(name, value);
  }
  for (const child of children.flat())
    if (child !== undefined && child !== null) made.append(child);
  return made;
}
const table = (heads, rows, numeric) => element(
    'table', {}, element('tr', {}, heads.map((h, i) => element('th', {class: numeric.includes(i) ? 'number' : undefined}, h))),
    rows.map(
        (r) => element(
            'tr', r.attributes || {}, r.cells.map((c, i) => element('td', {class: numeric.includes(i) ? 'number' : undefined}, c)))));
const code = (text) => element('code', {}, text);
const bar = (share, title) => {
  const filled = element('i');
  filled.style.width = Math.min(100, 100 * share) + '%';
  return element('div', {class: 'bar', title}, filled);
};
