// Every pass, before and after. Rows are made when a pass is looked at.
function passesView(view) {
  const steps = [{name: 'written', lines: D.written}, ...D.passes];
  const list = element('ol'), shown = element('div', {class: 'diff'});
  const rows = steps.map((s, i) => (i ? null : []));
  const changed = (i) => rowsOf(i).filter((r) => !r[2]).length;
  function rowsOf(i) {
    if (!rows[i]) rows[i] = diffLines(steps[i - 1].lines, steps[i].lines);
    return rows[i];
  }
  const words = (parts) => parts.map(([text, marked]) => (marked ? element('b', {}, text) : text));
  function show(i) {
    for (const li of list.children) li.classList.toggle('at', Number(li.dataset.step) === i);
    const body = rowsOf(i).map(([before, after, same]) => {
      if (same) return element('tr', {}, element('td', {}, before), element('td', {}, after));
      if (before === null) return element('tr', {}, element('td'), element('td', {class: 'added'}, after));
      if (after === null) return element('tr', {}, element('td', {class: 'removed'}, before), element('td'));
      const [left, right] = diffWords(before, after);
      return element('tr', {}, element('td', {class: 'removed'}, words(left)), element('td', {class: 'added'}, words(right)));
    });
    shown.replaceChildren(element(
        'table', {}, element('tr', {}, element('th', {}, 'before: ' + steps[i - 1].name), element('th', {}, 'after: ' + steps[i].name)),
        body));
  }
  for (const s of steps) s.lines = s.lines.map(lineOf);
  steps.forEach((s, i) => {
    if (!i) return;
    const count = changed(i);
    list.append(element(
        'li', {'data-step': i, tabindex: 0, click: () => show(i), keydown: (e) => e.key === 'Enter' && show(i)}, `${i - 1} ${s.name}`,
        element('span', {}, (count ? `${count} line${count === 1 ? '' : 's'} changed` : 'unchanged') + `, ${s.ms.toFixed(2)} ms`)));
  });
  view.append(element('div', {class: 'passes'}, list, shown));
  if (steps.length > 1) show(1);
  window.showPass = show;
}
