// Two texts of a program side by side. Definitions have names, so a line is matched with the line that defines the same name.
function keysOf(lines) {
  let block = 0;
  const seen = new Map();
  return lines.map((line) => {
    if (line.startsWith('}')) return `${block++}}`;  // ends the forward, or the backward
    const defined = line.match(/^\s+([A-Za-z_]\w*)\s*(\[[^=]*\])?\s*=/);
    let key = block + ':' + (defined ? defined[1] : line.trim().split(/[\s(]/)[0]);
    const count = seen.get(key) || 0;
    seen.set(key, count + 1);
    return count ? key + '#' + count : key;
  });
}

// Rows [before, after, equal]; null where a side has no line. The longest run of keys in the same order stays in place.
function diffLines(before, after) {
  const a = keysOf(before), b = keysOf(after), place = new Map(b.map((key, i) => [key, i]));
  const pairs = [];
  a.forEach((key, i) => {
    if (place.has(key)) pairs.push([i, place.get(key)]);
  });
  const best = [], previous = new Array(pairs.length).fill(-1);  // patience: best[l] ends the shortest-ending run of length l + 1
  pairs.forEach(([, j], p) => {
    let low = 0, high = best.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (pairs[best[mid]][1] < j)
        low = mid + 1;
      else
        high = mid;
    }
    previous[p] = low ? best[low - 1] : -1;
    best[low] = p;
  });
  const kept = [];
  for (let p = best.length ? best[best.length - 1] : -1; p >= 0; p = previous[p]) kept.push(pairs[p]);
  kept.reverse().push([a.length, b.length]);
  const rows = [];
  let i = 0, j = 0;
  for (const [x, y] of kept) {
    while (i < x) rows.push([before[i++], null, false]);
    while (j < y) rows.push([null, after[j++], false]);
    if (x < a.length) rows.push([before[i], after[j], before[i++] === after[j++]]);
  }
  return rows;
}

// Which words of two lines are not in both: lists of [text, changed].
function diffWords(before, after) {
  const words = (line) => line.match(/\w+|\s+|[^\w\s]/g) || [];
  const a = words(before), b = words(after);
  if (a.length * b.length > 250000) return [[[before, true]], [[after, true]]];
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; --i)
    for (let j = b.length - 1; j >= 0; --j)
      longest[i * width + j] =
          a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const left = [], right = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      left.push([a[i++], false]);
      right.push([b[j++], false]);
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1]))
      left.push([a[i++], true]);
    else
      right.push([b[j++], true]);
  }
  return [left, right];
}
