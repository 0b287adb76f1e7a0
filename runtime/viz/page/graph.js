// The graph: definitions, or kernels as boxes, laid out in layers by dagre in a worker, drawn by d3.
const kFewNodes = 150;  // of more, kernels begin as one box each
const kNearNodes =
    80;  // of more boxes, what comes from far away stands as a name beside its reader: long lines take long to lay out, and to follow
const kNearLayers = 4;
const kSimplexNodes = 250;  // of more, layers are found by the quicker method
const kLongestLabel = 26;   // characters

const graph = {
  open: new Set(),
  boxes: new Map(),
  chosen: null
};
const grouped = D.nodes.length > kFewNodes;
if (!grouped) D.kernels.forEach((k, i) => graph.open.add(i));

const boxOf = (n) => (n.kernel === undefined || graph.open.has(n.kernel) ? 'n' + n.id : 'k' + n.kernel);
const measure = document.createElement('canvas').getContext('2d');
function widthOf(text, font) {
  measure.font = font + ' system-ui, "DejaVu Sans", sans-serif';
  return measure.measureText(text).width;
}

// How many lines lead down to a box, at most.
function layersOf(boxes, lines) {
  const layer = new Map([...boxes.keys()].map((id) => [id, 0])), open = new Map([...boxes.keys()].map((id) => [id, 0])), below = new Map();
  for (const l of lines.values()) {
    open.set(l.to, open.get(l.to) + 1);
    below.set(l.from, (below.get(l.from) || []).concat(l.to));
  }
  const ready = [...open].filter(([, count]) => count === 0).map(([id]) => id);
  while (ready.length) {
    const id = ready.pop();
    for (const to of below.get(id) || []) {
      layer.set(to, Math.max(layer.get(to), layer.get(id) + 1));
      open.set(to, open.get(to) - 1);
      if (open.get(to) === 0) ready.push(to);
    }
  }
  return layer;
}

// Boxes and lines between them, as they are to be seen.
function visible() {
  const boxes = new Map(), lines = new Map();
  for (const n of D.nodes) {
    const id = boxOf(n);
    if (boxes.has(id)) continue;
    const k = n.kernel === undefined ? null : D.kernels[n.kernel];
    const box = id[0] === 'k' ? {
      id,
      kernel: n.kernel,
      name: cut(k.name, kLongestLabel),
      what: `${bytes(k.bytes_moved)}, ${flops(k.flops)}, ${time(k.ns)}`,
      kind: 'kernel ' + k.direction,
      share: k.share
    } :
                                {
                                  id,
                                  node: n.id,
                                  name: cut(n.name, kLongestLabel),
                                  what: `${n.shape.length ? '[' + cut(n.shape.join(','), 16) + '] ' : ''}${bytes(n.bytes)}`,
                                  kind: (n.direction || 'input') + (n.kind === 'stash' ? ' stash' : '') +
                                      (n.kind === 'output' || n.kind === 'gradient' ? ' result' : ''),
                                  parent: k && k.computes.length > 1 ? 'g' + n.kernel : undefined
                                };
    const price = box.node !== undefined && n.kind === 'stash' && n.price;
    if (price) box.why = `keep ${time(price.keep_ns)}, again ${time(price.recompute_ns)}`;
    box.width = Math.max(70, 22 + Math.max(widthOf(box.name, '600 12px'), widthOf(box.what, '10.5px'), widthOf(box.why || '', '10.5px')));
    box.height = box.kind.startsWith('kernel') ? 50 : box.why ? 54 : 40;
    boxes.set(id, box);
  }
  for (const e of D.edges) {
    const from = boxOf(D.nodes[e.from]), to = boxOf(D.nodes[e.to]);
    if (from === to) continue;
    const line = lines.get(from + ' ' + to) || {from, to, edges: []};
    line.edges.push(e);
    lines.set(from + ' ' + to, line);
  }
  const names = new Map(), far = boxes.size > kNearNodes;
  if (far) {
    const layer = layersOf(boxes, lines);
    for (const [key, line] of [...lines]) {
      const outer = !D.nodes[line.edges[0].from].direction || D.nodes[line.edges[0].from].direction !== D.nodes[line.edges[0].to].direction;
      if (!outer && layer.get(line.to) - layer.get(line.from) <= kNearLayers) continue;
      const from = 'r' + line.to;
      lines.delete(key);
      const sources = names.get(from) || new Set();
      for (const e of line.edges) sources.add(D.nodes[e.from]);
      names.set(from, sources);
      const line2 = lines.get(from + ' ' + line.to) || {from, to: line.to, edges: []};
      line2.edges.push(...line.edges);
      lines.set(from + ' ' + line.to, line2);
    }
  }
  for (const [id, sources] of names) {
    const list = [...sources], text = list.map((n) => n.name).join(', ');
    const box = {
      id,
      node: list[0].id,
      names: list,
      name: cut(text, kLongestLabel),
      what: list.some((n) => n.direction) ? 'from far above' : 'given',
      kind: 'input name',
      height: 40
    };
    box.width = Math.max(60, 22 + Math.max(widthOf(box.name, '600 12px'), widthOf(box.what, '10.5px')));
    boxes.set(id, box);
  }
  if (far)
    for (const [id, box] of boxes)
      if (box.node !== undefined && !box.names && !D.nodes[box.node].direction) boxes.delete(id);
  return {boxes, lines: [...lines.values()]};
}

const layoutCode = document.getElementById('dagre').textContent;
function layOut(nodes, edges, options, done) {
  const call = 'dagre.layout(m.nodes, m.edges, m.options, {});';
  try {
    const source =
        layoutCode + `\nonmessage = (event) => { const m = event.data; ${call} postMessage({ nodes: m.nodes, edges: m.edges }); };`;
    const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'})), worker = new Worker(url);
    worker.onmessage = (event) => {
      worker.terminate();
      URL.revokeObjectURL(url);
      done(event.data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      here();
    };
    worker.postMessage({nodes, edges, options});
  } catch (refused) {
    here();  // a browser that lets no page of a file have workers
  }
  function here() {
    const run = new Function('m', layoutCode + '\n' + call);
    let m = structuredClone({nodes, edges, options});
    try {
      run(m);
    } catch (failed) {  // with frames; without them layouts have fewer ways to fail
      m = {nodes: nodes.filter((n) => n.v[0] !== 'g').map((n) => ({...n, parent: undefined})), edges, options};
      run(m);
    }
    done(m);
  }
}

function drawGraph(then) {
  const {boxes, lines} = visible(), many = boxes.size > kSimplexNodes;
  const nodes = [...boxes.values()].map((b) => ({v: b.id, width: b.width, height: b.height, parent: many ? undefined : b.parent}));
  if (!many)
    for (const g of new Set(nodes.map((n) => n.parent).filter(Boolean))) nodes.push({v: g, width: 0, height: 0});
  const edges = lines.map((l) => ({v: l.from, w: l.to, minlen: 1, weight: 1, width: 0, height: 0, labeloffset: 10, labelpos: 'r'}));
  const busy = element('div', {class: 'busy'}, 'laying out…'), started = performance.now();
  graph.view.append(busy);
  graph.drawing = (graph.drawing || 0) + 1;
  const turn = graph.drawing;
  layOut(nodes, edges, {nodesep: 18, ranksep: 46, edgesep: 8, rankdir: 'TB', ranker: many ? 'tight-tree' : 'network-simplex'}, (made) => {
    busy.remove();
    if (turn !== graph.drawing) return;
    const groups = [];
    for (const n of made.nodes) n.v[0] === 'g' ? groups.push(n) : Object.assign(boxes.get(n.v), {x: n.x, y: n.y});
    made.edges.forEach((e, i) => {
      lines[i].points = e.points;
    });
    graph.boxes = boxes;
    graph.lines = lines;
    paint(groups);
    graph.layout_ms = performance.now() - started;
    document.body.dataset.laid = String(turn);
    if (then) then();
  });
}

const curve = d3.line().x((p) => p.x).y((p) => p.y).curve(d3.curveBasis);
function paint(groups) {
  const root = graph.root;
  root.selectAll('*').remove();
  const group =
      root.append('g').selectAll('g').data(groups).enter().append('g').attr('class', 'group').on('click', (g) => choose({
                                                                                                            kernel: Number(g.v.slice(1))
                                                                                                          }));
  group.append('rect')
      .attr('x', (g) => g.x - g.width / 2)
      .attr('y', (g) => g.y - g.height / 2)
      .attr('width', (g) => g.width)
      .attr('height', (g) => g.height)
      .attr('rx', 8);
  const labels = () =>
      root.append('g')
          .selectAll('g')
          .data(groups)
          .enter()
          .append('g')
          .attr('class', 'group')
          .append('text')
          .attr('x', (g) => g.x - g.width / 2 + 9)
          .attr('y', (g) => g.y - g.height / 2 + 15)
          .text((g) => {
            const k = D.kernels[Number(g.v.slice(1))],
                  long = `${bytes(k.bytes_moved)}, ${flops(k.flops)}, ${time(k.ns)}, ${percent(k.share)} of the roofline`;
            return [long, long.split(', ').slice(0, 3).join(', '), time(k.ns)].find((text) => widthOf(text, '10.5px') < g.width - 14) || '';
          });
  const lines = root.append('g').selectAll('g').data(graph.lines).enter().append('g');
  lines.append('path')
      .attr(
          'class',
          (l) => 'edge' + (l.edges.some((e) => D.nodes[e.from].kind === 'stash' && D.nodes[e.to].direction === 'backward') ? ' stash' : ''))
      .attr('d', (l) => curve(l.points))
      .attr('marker-end', 'url(#arrow)');
  lines.append('path')
      .attr('class', 'reach')
      .attr('d', (l) => curve(l.points))
      .on('mousemove',
          function(l) {
            d3.select(this.previousSibling).classed('lit', true);
            tip(d3.event, l.edges.slice(0, 12).map(edgeText).join('\n'));
          })
      .on('mouseout', function() {
        d3.select(this.previousSibling).classed('lit', false);
        tip(null);
      });
  const node =
      root.append('g')
          .selectAll('g')
          .data([...graph.boxes.values()])
          .enter()
          .append('g')
          .attr('class', (b) => 'node ' + b.kind)
          .attr('data-box', (b) => b.id)
          .attr('transform', (b) => `translate(${b.x - b.width / 2},${b.y - b.height / 2})`)
          .on('click', (b) => choose(b.node === undefined ? {kernel: b.kernel} : {node: b.node}))
          .on('dblclick', (b) => b.kernel !== undefined && openKernel(b.kernel))
          .on('mousemove',
              (b) => {
                light(b.id);
                tip(d3.event,
                    b.names ? b.names.map((n) => `${n.name}: ${n.kind} ${n.dtype}[${n.shape.join(',')}], ${bytes(n.bytes)}`).join('\n') :
                        b.node === undefined ? kernelTip(b.kernel) :
                                               nodeTip(b.node));
              })
          .on('mouseout', () => {
            light(null);
            tip(null);
          });
  node.append('rect').attr('class', 'box').attr('width', (b) => b.width).attr('height', (b) => b.height).attr('rx', 5);
  node.append('text').attr('class', 'name').attr('x', 11).attr('y', 17).text((b) => b.name);
  node.append('text').attr('class', 'what').attr('x', 11).attr('y', 32).text((b) => b.what);
  node.filter((b) => b.why).append('text').attr('class', 'what').attr('x', 11).attr('y', 46).text((b) => b.why);
  const shares = node.filter((b) => b.share !== undefined);
  shares.append('rect')
      .attr('class', 'room')
      .attr('x', 11)
      .attr('y', 39)
      .attr('width', (b) => b.width - 22)
      .attr('height', 5)
      .attr('rx', 2);
  shares.append('rect')
      .attr('class', 'share')
      .attr('x', 11)
      .attr('y', 39)
      .attr('width', (b) => (b.width - 22) * Math.min(1, b.share))
      .attr('height', 5)
      .attr('rx', 2);
  labels();
  mark();
}
const kernelTip = (i) => {
  const k = D.kernels[i];
  return `${k.name}\nmoves ${bytes(k.bytes_moved)} (${bytes(k.bytes_unavoidable)} unavoidable), ${flops(k.flops)}, ${time(k.ns)}, ${
      percent(k.share)} of the roofline\ncomputes ${cut(k.computes.map((n) => D.nodes[n].name).join(', '), 300)}`;
};
const nodeTip = (i) => {
  const n = D.nodes[i];
  return [
    cut(n.text || `${n.kind} ${n.name}: ${n.dtype}[${n.shape.join(',')}]`, 600), ...n.reads.slice(0, 8).map(edgeText),
    ...(n.price ? [`${n.price.verdict}: to keep ${time(n.price.keep_ns)}, to recompute ${time(n.price.recompute_ns)}`] : [])
  ].join('\n');
};

// What a box reads and who reads it stands out.
function light(id) {
  const near = new Set([id]);
  for (const l of graph.lines)
    if (id !== null && (l.from === id || l.to === id)) near.add(l.from).add(l.to);
  graph.root.selectAll('.node').classed('dim', (b) => id !== null && !near.has(b.id));
  graph.root.selectAll('.edge')
      .classed('dim', (l) => id !== null && l.from !== id && l.to !== id)
      .classed('lit', (l) => id !== null && (l.from === id || l.to === id));
}
function mark() {
  if (!graph.root) return;
  graph.root.selectAll('.node').classed('chosen', (b) => b.id === graph.chosen).classed('hit', (b) => found.boxes.has(b.id));
}
function openKernel(i, then) {
  graph.open.has(i) ? graph.open.delete(i) : graph.open.add(i);
  drawGraph(then || (() => centre(boxOf(D.nodes[D.kernels[i].computes[0]]))));
}

function fit() {
  const box = graph.root.node().getBBox(), view = graph.view.getBoundingClientRect();
  if (!box.width || !view.width) return;
  const scale = Math.min(1.4, (view.width - 40) / box.width, (view.height - 90) / box.height);
  graph.svg.call(
      graph.zoom.transform,
      d3.zoomIdentity.translate(view.width / 2 - scale * (box.x + box.width / 2), (view.height - 10) / 2 - scale * (box.y + box.height / 2))
          .scale(scale));
}
function centre(id) {
  const b = graph.boxes.get(id), view = graph.view.getBoundingClientRect();
  if (!b || !view.width) return;
  const scale = Math.max(0.7, d3.zoomTransform(graph.svg.node()).k);
  graph.svg.call(graph.zoom.transform, d3.zoomIdentity.translate(view.width / 2 - scale * b.x, view.height / 2 - scale * b.y).scale(scale));
}
// To a box above or below along a line, or beside it in its layer.
function walk(key) {
  const b = graph.boxes.get(graph.chosen);
  if (!b) return choose({node: 0});
  let next = [];
  if (key === 'ArrowUp') next = graph.lines.filter((l) => l.to === b.id).map((l) => l.from);
  if (key === 'ArrowDown') next = graph.lines.filter((l) => l.from === b.id).map((l) => l.to);
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const side = key === 'ArrowLeft' ? -1 : 1;
    next = [...graph.boxes.values()]
               .filter((o) => Math.abs(o.y - b.y) < 25 && side * (o.x - b.x) > 1)
               .sort((a, c) => side * (a.x - c.x))
               .map((o) => o.id);
  } else {
    next.sort((a, c) => Math.abs(graph.boxes.get(a).x - b.x) - Math.abs(graph.boxes.get(c).x - b.x));
  }
  const to = graph.boxes.get(next[0]);
  if (to) choose(to.node === undefined ? {kernel: to.kernel} : {node: to.node});
}

function graphView(view) {
  graph.view = view;
  graph.svg = d3.select(view).append('svg').attr('class', 'canvas').attr('tabindex', 0);
  graph.svg.append('defs')
      .append('marker')
      .attr('id', 'arrow')
      .attr('viewBox', '0 0 8 8')
      .attr('refX', 7)
      .attr('refY', 4)
      .attr('markerUnits', 'userSpaceOnUse')
      .attr('markerWidth', 8)
      .attr('markerHeight', 8)
      .attr('orient', 'auto')
      .append('path')
      .attr('class', 'arrow')
      .attr('d', 'M0,0L8,4L0,8z');
  graph.root = graph.svg.append('g');
  graph.zoom = d3.zoom().scaleExtent([0.02, 6]).on('zoom', () => graph.root.attr('transform', d3.event.transform));
  graph.svg.call(graph.zoom).on('dblclick.zoom', null);
  const sign = (color, text) => {
    const i = element('i');
    i.style.background = `var(--${color})`;
    return element('span', {}, i, text);
  };
  view.append(
      element(
          'div', {class: 'legend'}, sign('input', 'input, cotangent'), sign('forward', 'forward'), sign('stash', 'kept for the backward'),
          sign('backward', 'backward')),
      element(
          'div', {class: 'tools'}, element('button', {id: 'fit', title: 'fit (0)', click: fit}, 'fit'),
          element('button', {id: 'in', title: 'larger (+)', click: () => graph.svg.call(graph.zoom.scaleBy, 1.3)}, '+'),
          element('button', {id: 'out', title: 'smaller (-)', click: () => graph.svg.call(graph.zoom.scaleBy, 1 / 1.3)}, '−'),
          element(
              'button', {id: 'open-all', title: 'kernels as boxes, or what they compute (k)', click: toggleKernels}, 'kernels as boxes')));
  drawGraph(start);
}
// All of it, where names can be read then; else where it begins.
function start() {
  fit();
  if (d3.zoomTransform(graph.svg.node()).k > 0.3) return;
  const forward = [...graph.boxes.values()].filter((b) => b.kind.includes('forward'));
  const first = forward.length && forward.reduce((a, b) => (b.y < a.y ? b : a)), scale = 0.7;
  if (first)
    graph.svg.call(
        graph.zoom.transform, d3.zoomIdentity.translate(graph.view.clientWidth / 3 - scale * first.x, 130 - scale * first.y).scale(scale));
}
function toggleKernels() {
  if (graph.open.size)
    graph.open.clear();
  else
    D.kernels.forEach((k, i) => graph.open.add(i));
  drawGraph(start);
}
