// The front of stash bytes against time, and the timeline of a run.
function plot(view, width, height) {
  const svg = d3.create('svg').attr('class', 'plot').attr('width', width).attr('height', height);
  view.append(svg.node());
  return svg;
}

function paretoPlot(view) {
  const points = D.pareto;
  if (!points.length) return view.append(element('p', {class: 'soft'}, 'There is nothing to choose.'));
  const width = 620, height = 280, left = 80, bottom = 46, svg = plot(view, width, height);
  const most = d3.max(points, (p) => p.bytes), slowest = d3.max(points, (p) => p.cost_ns);
  const x = d3.scaleLinear().domain([0, most || 1]).range([left, width - 24]).nice(5),
        y = d3.scaleLinear().domain([0, slowest || 1]).range([height - bottom, 16]).nice(5);
  svg.append('g').attr('transform', `translate(0,${height - bottom})`).call(d3.axisBottom(x).ticks(5).tickFormat(bytes));
  svg.append('g').attr('transform', `translate(${left},0)`).call(d3.axisLeft(y).ticks(5).tickFormat(time));
  svg.append('text').attr('x', (left + width) / 2).attr('y', height - 8).attr('text-anchor', 'middle').text('bytes that the forward keeps');
  svg.append('text')
      .attr('transform', `translate(14,${(height - bottom) / 2}) rotate(-90)`)
      .attr('text-anchor', 'middle')
      .text('time that it costs');
  const sorted = points.slice().sort((a, b) => a.bytes - b.bytes);
  svg.append('path')
      .attr('class', 'front')
      .attr('d', d3.line().x((p) => x(p.bytes)).y((p) => y(p.cost_ns)).curve(d3.curveStepAfter)(sorted));
  svg.selectAll('circle')
      .data(sorted)
      .enter()
      .append('circle')
      .attr('r', 6)
      .attr('cx', (p) => x(p.bytes))
      .attr('cy', (p) => y(p.cost_ns))
      .classed('here', (p) => p.bytes === D.stash.bytes)
      .on('mousemove',
          function(p) { tip(d3.event, `${bytes(p.bytes)}, ${time(p.cost_ns)}: keeps ${cut(p.kept.join(', ') || 'nothing', 300)}`); })
      .on('mouseout', () => tip(null));
  view.append(
      table(
          ['stash', 'time', 'policy', 'keeps'],
          sorted.map((p) => ({cells: [bytes(p.bytes), time(p.cost_ns), p.policy, cut(p.kept.join(', ') || 'nothing', 300)]})), [0, 1]),
      element(
          'p', {class: 'soft'},
          'The marked point is what was chosen. --stash budget=BYTES chooses another.' +
              (points.some((p) => p.policy) ?
                   ' There are too many candidates for the whole front on this page; xhat explain --pareto computes it.' :
                   '')));
}

function timelineView(view) {
  view.append(
      element('h2', {}, 'timeline of a run'),
      element('p', {class: 'soft'}, D.timeline_of || 'Nothing was run: xhat viz runs the op once if --dims gives all sizes.'));
  if (!D.timeline.length) return;
  const lanes = [...new Set(D.timeline.map((e) => e.direction))], left = 80, row = 46, width = Math.max(600, view.clientWidth - 40 || 900),
        height = lanes.length * row + 40;
  const end = d3.max(D.timeline, (e) => e.start + e.ns), svg = plot(view, width, height);
  const x = d3.scaleLinear().domain([0, end]).range([left, width - 20]);
  svg.append('g').attr('transform', `translate(0,${lanes.length * row + 6})`).call(d3.axisBottom(x).ticks(7).tickFormat(time));
  lanes.forEach((lane, i) => svg.append('text').attr('x', 6).attr('y', i * row + 28).text(lane));
  const kernelOf = (e) => D.kernels.findIndex((k) => k.direction === e.direction && k.name === e.kernel);
  for (const e of D.timeline) {
    const y = lanes.indexOf(e.direction) * row + 6, w = Math.max(1.5, x(e.start + e.ns) - x(e.start));
    svg.append('rect')
        .attr('class', 'run ' + e.direction)
        .attr('x', x(e.start))
        .attr('y', y)
        .attr('width', w)
        .attr('height', row - 12)
        .on('click', () => kernelOf(e) >= 0 && choose({kernel: kernelOf(e)}))
        .on('mousemove', () => tip(d3.event, `${e.kernel}: ${time(e.ns)}, from ${time(e.start)}`))
        .on('mouseout', () => tip(null));
    const fits = Math.floor((w - 8) / 6.6);
    if (fits >= 3) svg.append('text').attr('class', 'label').attr('x', x(e.start) + 4).attr('y', y + 21).text(cut(e.kernel, fits));
  }
  const rows = D.timeline.map((e) => ({cells: [e.direction, e.kernel, time(e.start), time(e.ns)]}));
  view.append(table(['direction', 'kernel', 'from', 'took'], rows.slice(0, 400), [2, 3]));
}
const cut = (text, length) => (text.length <= length ? text : text.slice(0, Math.max(1, length - 1)) + '…');
