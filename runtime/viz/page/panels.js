// What is chosen, at the right; the tables of kernels and of the stash.
const details = document.getElementById('details');

function showText(head, number, wrap) {
  const text = textOf(number);
  return text === undefined ? [] : [element('h3', {}, head), element('pre', {class: wrap ? 'wrap' : undefined}, text)];
}
const nodeLink = (id) => element('button', {click: () => choose({node: id})}, D.nodes[id].name);
const edgeText = (e) => D.nodes[e.to].element + ' ← ' + D.patterns[e.pattern].replaceAll('@', D.nodes[e.from].name);

function showNode(id) {
  const n = D.nodes[id], k = n.kernel === undefined ? null : D.kernels[n.kernel], p = n.price;
  details.replaceChildren(
      element('h2', {}, n.name),
      element(
          'div', {class: 'soft'},
          `${n.kind}, ${n.dtype}[${n.shape.join(', ')}], ${bytes(n.bytes)}` + (k && !n.stored ? '; stays inside its kernel' : '') +
              (n.line ? `; line ${n.line}` : '')),
      ...(n.text ? [element('h3', {}, 'definition'), element('pre', {class: 'wrap'}, n.text)] : []),
      ...(p ?
              [
                element('h3', {}, 'for the backward'),
                element('div', {}, element('span', {class: 'verdict ' + p.verdict}, p.verdict), ' ', p.reason),
                element(
                    'div', {}, `to keep ${time(p.keep_ns)}, to recompute ${time(p.recompute_ns)}; ${p.uses} use${p.uses === 1 ? '' : 's'}`)
              ] :
              []),
      ...(k ? [element('h3', {}, 'kernel'), element('button', {click: () => choose({kernel: n.kernel})}, k.name)] : []),
      ...(n.reads.length ? [element('h3', {}, 'reads'), n.reads.map((e) => element('div', {}, nodeLink(e.from), ' ', code(edgeText(e))))] :
                           [])
          .flat(),
      ...(n.readers.length ?
              [element('h3', {}, 'is read by'), n.readers.map((e) => element('div', {}, nodeLink(e.to), ' ', code(edgeText(e))))] :
              [])
          .flat());
}

function showKernel(number) {
  const k = D.kernels[number];
  details.replaceChildren(
      element('h2', {}, k.name),
      element(
          'div', {class: 'soft'},
          k.direction + (k.finish ? ', finishes the kernel before it' : '') + (k.joined ? ', in one sweep with the kernel before it' : '') +
              (k.combines ? ', adds up partial results of tiles' : '') + (k.streams ? ', stores past the cache' : '') +
              (k.library ? ', computed by ' + k.library : '')),
      table(
          ['', ''],
          [
            {cells: ['bytes moved', bytes(k.bytes_moved)]}, {cells: ['of these unavoidable', bytes(k.bytes_unavoidable)]},
            {cells: ['work', flops(k.flops)]}, {cells: ['time by the prices', time(k.model)]},
            ...(k.measured === null ? [] : [{cells: ['time measured', time(k.measured)]}]),
            {cells: ['the roofline\'s time', time(k.least)]}, {cells: ['share of the roofline', percent(k.share)]}
          ],
          [1]),
      ...(k.reason ? [element('h3', {}, 'stands apart because'), element('div', {}, k.reason)] : []), element('h3', {}, 'computes'),
      element('div', {}, k.computes.map(nodeLink)), element('h3', {}, 'loops'),
      table(['axis', 'extent', 'tile', ''], k.axes.map((a) => ({cells: [a.name, a.extent, a.tile, a.grid ? 'grid' : '']})), [1, 2]),
      ...showText('schedule', k.schedule), ...showText('as it is lowered', k.loops), ...showText('source', k.source),
      ...(k.loops === undefined ?
              [element(
                  'p', {class: 'soft'},
                  'Loops and source are on the page for the first kernels of a direction; XHAT=dump=DIR writes them all.')] :
              []));
}

function showKernelTable(view) {
  const longest = Math.max(...D.kernels.map((k) => k.ns), 1e-9);
  const rows = (direction) =>
      D.kernels.map((k, i) => ({k, i}))
          .filter((r) => r.k.direction === direction)
          .map(({k, i}) => ({
                 attributes: {class: 'go', 'data-kernel': i, click: () => choose({kernel: i})},
                 cells: [
                   k.name + (k.finish ? ' (finish)' : ''), bytes(k.bytes_moved), bytes(k.bytes_unavoidable), flops(k.flops), time(k.ns),
                   bar(k.ns / longest, time(k.ns)), percent(k.share), bar(k.share, percent(k.share))
                 ]
               }));
  for (const direction of ['forward', 'backward']) {
    if (!D[direction]) continue;
    const d = D[direction];
    view.append(
        element(
            'h2', {},
            `${direction}: ${d.kernel_count} kernel${d.kernel_count === 1 ? '' : 's'}, ${bytes(d.bytes_moved)} moved, ${
                bytes(d.bytes_unavoidable)} unavoidable, ${flops(d.flops)}`),
        table(
            ['kernel', 'moved', 'unavoidable', 'work', D.timeline.length ? 'time' : 'time (model)', '', 'roofline', ''], rows(direction),
            [1, 2, 3, 4, 6]));
  }
  view.append(element(
      'p', {class: 'soft'},
      `The roofline's time is the longer of the unavoidable bytes at ${(1000 / D.roof.ps_per_byte).toFixed(0)} GB/s and the work at ` +
          `${(1000 / D.roof.ps_per_flop).toFixed(0)} Gflop/s, what two threads reach by the prices that plans are made with. ` +
          'Times are ' + (D.timeline.length ? 'measured, where a kernel ran, else ' : '') +
          'the model\'s: the longer of all bytes moved and the work at these rates. More threads, another machine, and tensors that lie in a cache can be faster than that line.'));
}

function showStash(view) {
  const s = D.stash;
  if (!D.differentiated) return view.append(element('p', {}, 'The op was compiled without a backward, so nothing is kept.'));
  view.append(
      element(
          'h2', {},
          `stash: ${s.kept.length} tensor${s.kept.length === 1 ? '' : 's'}, ${bytes(s.bytes)}` +
              (s.by_caller.length ? `; of the caller's the backward reads ${s.by_caller.join(', ')}` : '')),
      element(
          'p', {class: 'soft'},
          `cost ${time(s.cost_ns)}, lower bound ${time(s.lower_bound_ns)}` + (s.optimal ? ': no choice is cheaper' : '')),
      table(
          ['value', 'shape', 'bytes', 'uses', 'to keep', 'to recompute', 'verdict', 'because', 'is'],
          s.values.map((v) => ({
                         attributes: {class: 'go', 'data-value': v.name, click: () => v.node !== undefined && choose({node: v.node})},
                         cells: [
                           v.name, `[${v.shape.join(',')}]`, bytes(v.bytes), v.uses, time(v.keep_ns), time(v.recompute_ns),
                           element('span', {class: 'verdict ' + v.verdict}, v.verdict), v.reason, code(v.expression.slice(0, 300))
                         ]
                       })),
          [2, 3, 4, 5]),
      element('h2', {}, 'what a budget for the stash buys'));
  paretoPlot(view);
}
