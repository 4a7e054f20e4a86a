// SPDX-License-Identifier: Apache-2.0
//
// How full the budget is: one bar for all of it, by pages, and one row for each kind of state, by
// what is really in them.

import { $, bytes, drawBar, drawLegend, element, percent, setFigure, swatch } from './draw.js';

const kKinds = [
  { key: 'attention', name: 'Attention' },
  { key: 'ssm', name: 'SSM' },
  { key: 'conv', name: 'Convolution' },
  { key: 'row', name: 'Kept rows' },
];

// Bytes of the pools' pages by use, and of the kept rows.
function pageBytes(cache) {
  const sums = { held_attention: 0, held_state: 0, cached_attention: 0, cached_state: 0, reserved: 0, draining: 0, free: 0 };
  for (const pool of cache.pools) {
    for (const use of Object.keys(sums)) sums[use] += pool.pages[use] * pool.page_bytes;
  }
  const rows = cache.kept;
  sums.rows = rows.row_capacity > 0 ? (cache.row_bytes * rows.rows) / rows.row_capacity : 0;
  sums.free += cache.row_bytes - sums.rows;
  return sums;
}

export function drawMemory(cache) {
  const sums = pageBytes(cache);
  const all = Object.values(sums).reduce((a, b) => a + b, 0);
  const parts = [
    ['held_attention', 'attention', '', 'Attention in use'],
    ['cached_attention', 'attention', 'pale', 'Attention cached'],
    ['held_state', 'ssm', '', 'SSM and conv in use'],
    ['cached_state', 'ssm', 'pale', 'SSM and conv cached'],
    ['rows', 'row', 'pale', 'Kept rows'],
    ['reserved', 'reserved', 'hollow', 'Reserved'],
    ['draining', 'draining', '', 'Draining'],
  ];
  const label = (use, name) => `${name}: ${bytes(sums[use])}`;
  drawBar($('whole'), parts.map(([use, kind, style, name]) => (
    { part: sums[use], kind, style, label: label(use, name) })), all);
  $('whole').setAttribute('aria-label',
    `${parts.map(([use, , , name]) => label(use, name)).join(', ')}, free: ${bytes(sums.free)}`);
  drawLegend($('whole-legend'), [
    ...parts.map(([use, kind, style, name]) => ({ kind, style, name, value: bytes(sums[use]) })),
    { kind: 'free', name: 'Free', value: bytes(sums.free) },
  ]);
  const used = sums.held_attention + sums.held_state;
  const cached = sums.cached_attention + sums.cached_state;
  setFigure($('fill'), `${percent(all - sums.free - cached, all)} taken`);
  $('fill-note').textContent = `${bytes(used)} in use, ${bytes(cached)} cached`;
  $('budget').textContent = `budget ${bytes(cache.budget_bytes)}`;
}

export function drawKinds(kinds, budget) {
  const body = $('kinds');
  if (body.children.length === 0) {
    for (const { key, name } of kKinds) {
      const row = element('tr');
      const head = element('th');
      head.scope = 'row';
      head.append(swatch(key), name);
      const bar = element('div', 'bar');
      bar.setAttribute('role', 'img');
      const cell = element('td', 'wide');
      cell.append(bar);
      row.append(head, cell, element('td'), element('td'));
      body.append(row);
    }
  }
  kKinds.forEach(({ key, name }, i) => {
    const kind = kinds[key];
    const used = (kind.live + kind.held + kind.pinned) * kind.object_bytes;
    const cached = (kind.retained + kind.cached) * kind.object_bytes;
    const [, cell, inUse, kept] = body.children[i].children;
    drawBar(cell.firstElementChild, [
      { part: used, kind: key, label: `${name} in use: ${bytes(used)}` },
      { part: cached, kind: key, style: 'pale', label: `${name} cached: ${bytes(cached)}` },
    ], budget);
    inUse.textContent = bytes(used);
    kept.textContent = bytes(cached);
  });
}
