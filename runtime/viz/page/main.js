// Tabs, search, keys, colours.
const views = {
  graph: ['graph', graphView],
  kernels: ['kernels', showKernelTable],
  stash: ['stash', showStash],
  passes: ['passes', passesView],
  timeline: ['timeline', timelineView],
  about: ['licences', () => {}],
};
const names = Object.keys(views), made = new Set();
let current = null;

function showView(name) {
  current = name;
  for (const other of names) {
    document.getElementById('view-' + other).hidden = other !== name;
    document.getElementById('tab-' + other).setAttribute('aria-selected', String(other === name));
  }
  if (!made.has(name)) {
    made.add(name);
    views[name][1](document.getElementById('view-' + name));
  }
}

// A node or a kernel, wherever it is shown.
function choose(what) {
  const node = what.node === undefined ? null : D.nodes[what.node];
  if (node)
    showNode(what.node);
  else
    showKernel(what.kernel);
  graph.chosen = node ? boxOf(node) : graph.open.has(what.kernel) ? boxOf(D.nodes[D.kernels[what.kernel].computes[0]]) : 'k' + what.kernel;
  if (!graph.boxes.has(graph.chosen)) {  // its name stands beside who reads it
    const beside = [...graph.boxes.values()].find((b) => b.names && b.names.includes(node));
    if (beside) graph.chosen = beside.id;
  }
  mark();
  if (current === 'graph') bringIn(graph.chosen);
  for (const row of document.querySelectorAll('tr[data-kernel]'))
    row.classList.toggle('chosen', !node && Number(row.dataset.kernel) === what.kernel);
}
// The view moves only if the box is outside of it.
function bringIn(id) {
  const box = graph.root.selectAll('.node').filter((b) => b.id === id).node();
  if (!box) return;
  const at = box.getBoundingClientRect(), view = graph.view.getBoundingClientRect();
  if (at.left < view.left || at.right > view.right || at.top < view.top || at.bottom > view.bottom || at.height < 18) centre(id);
}

const tipBox = document.getElementById('tip');
function tip(event, text) {
  tipBox.hidden = !event;
  if (!event) return;
  tipBox.replaceChildren(...text.split('\n').map((line) => element('div', {}, line)));
  const at = tipBox.getBoundingClientRect();
  tipBox.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - at.width - 8)) + 'px';
  tipBox.style.top =
      (event.clientY + 16 + at.height > innerHeight ? Math.max(4, event.clientY - at.height - 10) : event.clientY + 16) + 'px';
}

const search = document.getElementById('search'), hits = document.getElementById('hits');
const found = {
  boxes: new Set(),
  list: [],
  at: 0
};
function find(text) {
  const wanted = text.trim().toLowerCase();
  found.list = [];
  found.boxes = new Set();
  found.at = 0;
  if (wanted) {
    for (const n of D.nodes)
      if (n.name.toLowerCase().includes(wanted)) found.list.push({text: n.name, kind: n.kind, go: {node: n.id}});
    D.kernels.forEach((k, i) => {
      if (k.name.toLowerCase().includes(wanted)) found.list.push({text: k.name, kind: k.direction + ' kernel', go: {kernel: i}});
    });
    for (const n of D.nodes)
      if (n.text && !n.name.toLowerCase().includes(wanted) && n.text.toLowerCase().includes(wanted))
        found.list.push({text: n.name, kind: 'in its definition', go: {node: n.id}});
    const rank = (h) => (h.text.toLowerCase() === wanted ? 0 : h.kind === 'in its definition' ? 2 : 1);
    found.list.sort((a, b) => rank(a) - rank(b));
    for (const h of found.list) found.boxes.add(h.go.node === undefined ? 'k' + h.go.kernel : boxOf(D.nodes[h.go.node]));
    for (const b of graph.boxes.values())
      if (b.names && b.names.some((n) => n.name.toLowerCase().includes(wanted))) found.boxes.add(b.id);
  }
  hits.hidden = !wanted;
  hits.replaceChildren(
      ...found.list.slice(0, 60).map(
          (h, i) => element(
              'li', {
                class: i === 0 ? 'at' : undefined,
                mousedown: (e) => {
                  e.preventDefault();
                  take(i);
                }
              },
              h.text, ' ', element('span', {class: 'what'}, h.kind))),
      ...(found.list.length ? (found.list.length > 60 ? [element('li', {class: 'what'}, `and ${found.list.length - 60} more`)] : []) :
                                                        [element('li', {class: 'what'}, 'nothing has this name')]));
  mark();
}
function take(i) {
  const hit = found.list[i];
  if (!hit) return;
  hits.hidden = true;
  search.blur();
  showView('graph');
  choose(hit.go);
  centre(graph.chosen);
}
search.addEventListener('input', () => find(search.value));
search.addEventListener('blur', () => {
  hits.hidden = true;
});
search.addEventListener('keydown', (e) => {
  if (e.key === 'Escape') {
    search.value = '';
    find('');
    search.blur();
  }
  if (e.key === 'Enter') take(found.at);
  if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
    found.at = Math.max(0, Math.min(found.list.length - 1, 59, found.at + (e.key === 'ArrowDown' ? 1 : -1)));
    [...hits.children].forEach((li, i) => li.classList.toggle('at', i === found.at));
    e.preventDefault();
  }
  e.stopPropagation();
});

function setTheme(theme) { document.documentElement.dataset.theme = theme; }
const toggleTheme = () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
document.getElementById('theme').addEventListener('click', toggleTheme);

const keys = document.getElementById('keys');
const help = [
  ['/', 'search'], ['1 … 6', 'views'], ['↑ ↓', 'to what the chosen box reads, to what reads it'], ['← →', 'beside it'],
  ['Enter', 'a kernel\'s box opens or closes'], ['+ − 0', 'larger, smaller, fit'], ['k', 'kernels as boxes, or what they compute'],
  ['t', 'dark or light'], ['Esc', 'nothing chosen'], ['?', 'this list']
];
keys.append(
    element('h2', {}, 'keys'), table(['', ''], help.map(([k, what]) => ({cells: [element('kbd', {}, k), what]})), []),
    element('button', {click: () => keys.close()}, 'close'));
document.getElementById('help').addEventListener('click', () => keys.showModal());

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || keys.open) return;
  const n = Number(e.key);
  if (n >= 1 && n <= names.length) return showView(names[n - 1]);
  const actions = {
    '/': () => search.focus(),
    t: toggleTheme,
    '?': () => keys.showModal(),
    Escape: () => {
      graph.chosen = null;
      search.value = '';
      find('');
      overview();
    },
    ...(current === 'graph' ? {
      '+': () => document.getElementById('in').click(),
      '-': () => document.getElementById('out').click(),
      0: fit,
      k: toggleKernels,
      Enter: () => {
        const b = graph.boxes.get(graph.chosen);
        const i = b && (b.kernel === undefined ? D.nodes[b.node].kernel : b.kernel);
        if (i !== undefined) openKernel(i);
      },
      ArrowUp: () => walk('ArrowUp'),
      ArrowDown: () => walk('ArrowDown'),
      ArrowLeft: () => walk('ArrowLeft'),
      ArrowRight: () => walk('ArrowRight'),
    } :
                              {}),
  };
  if (!actions[e.key]) return;
  e.preventDefault();
  actions[e.key]();
});

// At the right, until something is chosen.
function overview() {
  const dims = Object.entries(D.dims).map(([name, value]) => `${name} = ${value}${name in D.nominal ? ' (nominal)' : ''}`);
  const sum = (direction) => D.kernels.filter((k) => k.direction === direction).reduce((ns, k) => ns + k.ns, 0);
  const row = (d) => ({cells: [d, D[d].kernel_count, bytes(D[d].bytes_moved), flops(D[d].flops), time(sum(d))]});
  details.replaceChildren(
      element('h2', {}, 'op ' + D.op), element('div', {class: 'soft'}, `for ${D.target}` + (dims.length ? '; ' + dims.join(', ') : '')),
      table(['', 'kernels', 'moved', 'work', 'time'], ['forward', 'backward'].filter((d) => D[d]).map(row), [1, 2, 3, 4]),
      ...(D.differentiated ?
              [element(
                  'p', {},
                  `kept for the backward: ${D.stash.kept.length ? cut(D.stash.kept.map((s) => s.name).join(', '), 200) : 'nothing'}, ${
                      bytes(D.stash.bytes)}`)] :
              []),
      element('h3', {}, 'as it was written'), element('pre', {class: 'wrap'}, D.written.map(lineOf).join('\n')),
      ...(D.left_out ? [element('p', {class: 'soft'}, `${D.left_out} texts are left out, the page would be too large.`)] : []));
  mark();
}

document.getElementById('title').textContent = D.op;
names.forEach(
    (name, i) => document.getElementById('tabs').append(
        element('button', {id: 'tab-' + name, role: 'tab', title: `${i + 1}`, click: () => showView(name)}, views[name][0])));
overview();
showView('graph');
addEventListener('resize', () => {
  if (current === 'graph') fit();
});
document.body.dataset.ready = performance.now().toFixed(0);
