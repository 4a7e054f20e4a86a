// SPDX-License-Identifier: Apache-2.0
//
// Every page of every pool as a cell, in the order of memory; pointing at one, or stepping through
// the runs with the arrow keys, says whose it is. Where there are more pages than cells that can be
// told apart, a cell stands for several and shows the first of them that is taken.

import { describeCheckpoint } from './checkpoints.js';
import { $, bytes, colour, count, drawLegend, element, plural, prepare } from './draw.js';

const kTallest = 232;  // pixels of a map
const kCells = { least: 4, most: 18 };
const kPale = 0.45;  // as in page.css
const kHint = 'Point at a page, or step through the runs with the arrow keys, to see whose it is.';

drawLegend($('map-legend'), [
  { kind: 'attention', name: 'attention' },
  { kind: 'image', name: 'SSM and conv' },
  { kind: 'row', name: 'kept rows, slabs' },
  { kind: 'image', style: 'pale', name: 'faint: cached, nobody uses it' },
  { kind: 'draining', name: 'draining' },
  { kind: 'free', name: 'free or reserved' },
]);
$('owner').textContent = kHint;

const maps = [];  // of a pool: {canvas, title, pool, ends, cell, columns, perCell, chosen}

function ownerOf(run, first) {
  const [pages, use, content, owner, id, from, to, sharers] = run;
  const where = pages === 1 ? `Page ${count(first)}` : `Pages ${count(first)}–${count(first + pages - 1)}`;
  if (content === undefined) return `${where} · ${use === 'free' ? 'free' : 'waits for the running step to end'}`;
  if (content === 'slab') return `${where} · slab of small states, ${from} of ${to} slots used · ${use}`;
  const what = {
    block: `attention of tokens ${count(from)}–${count(to)}`,
    image: `SSM and convolution state after ${plural(to, 'token')}`,
    row: `last row of a prompt of ${plural(to, 'token')}`,
  }[content];
  if (owner === 'request') return `${where} · ${what} · being written by request #${id}`;
  const readers = sharers > 0 ? `read by ${plural(sharers, 'request')}` : use;
  const more = content === 'image' ? describeCheckpoint(id) : '';
  return [where, what, readers, more || `entry ${id}`].join(' · ');
}

const kindOf = (content) => ({ block: 'attention', image: 'ssm', row: 'row', slab: 'row' })[content] || 'draining';

function runAt(map, page) {
  let [low, high] = [0, map.ends.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (map.ends[middle] > page) high = middle;
    else low = middle + 1;
  }
  return low;
}

function layOut(map, width) {
  const pages = map.pool.pages;
  let cell = Math.min(kCells.most, Math.max(kCells.least, Math.floor(Math.sqrt((width * kTallest) / Math.max(1, pages)))));
  const columnsOf = (size) => Math.max(1, Math.floor(width / size));
  while (cell > kCells.least && Math.ceil(pages / columnsOf(cell)) * cell > kTallest) --cell;
  map.cell = cell;
  map.columns = columnsOf(cell);
  map.perCell = Math.max(1, Math.ceil(pages / (map.columns * Math.floor(kTallest / cell))));
  return Math.ceil(Math.ceil(pages / map.perCell) / map.columns) * cell;
}

// The first taken run of each cell, or -1.
function runOfCells(map) {
  const cells = new Int32Array(Math.ceil(map.pool.pages / map.perCell)).fill(-1);
  map.pool.runs.forEach((run, index) => {
    if (run[1] === 'free') return;
    const first = Math.floor((map.ends[index] - run[0]) / map.perCell);
    const last = Math.floor((map.ends[index] - 1) / map.perCell);
    for (let cell = first; cell <= last; ++cell) if (cells[cell] < 0) cells[cell] = index;
  });
  return cells;
}

function draw(map) {
  const width = map.canvas.parentElement.clientWidth;
  if (width === 0) return;
  const height = layOut(map, width);
  map.canvas.style.height = `${height}px`;
  const context = prepare(map.canvas, width, height);
  const tones = Object.fromEntries(['attention', 'ssm', 'row', 'draining'].map((kind) => [kind, colour(kind)]));
  const track = colour('track');
  const ink = colour('ink');
  const size = map.cell - 1;
  const cells = runOfCells(map);
  cells.forEach((index, cell) => {
    const [x, y] = [(cell % map.columns) * map.cell, Math.floor(cell / map.columns) * map.cell];
    context.fillStyle = track;
    if (index < 0) {
      context.fillRect(x, y, size, size);
      return;
    }
    const [, use, content] = map.pool.runs[index];
    context.globalAlpha = use === 'cached' ? kPale : 1;
    context.fillStyle = tones[kindOf(content)];
    // Cells of one run touch.
    const goesOn = cells[cell + 1] === index && (cell + 1) % map.columns !== 0;
    context.fillRect(x, y, goesOn ? map.cell : size, size);
    context.globalAlpha = 1;
    if (index !== map.chosen) return;
    context.fillStyle = ink;
    context.fillRect(x, y + size - 2, goesOn ? map.cell : size, 2);
    context.fillRect(x, y, goesOn ? map.cell : size, 2);
  });
}

function choose(map, index) {
  for (const other of maps) {
    if (other === map || other.chosen < 0) continue;
    other.chosen = -1;
    draw(other);
  }
  map.chosen = index;
  const run = map.pool.runs[index];
  $('owner').textContent = run === undefined ? kHint : ownerOf(run, map.ends[index] - run[0]);
  draw(map);
}

function makeMap() {
  const box = element('div', 'pool');
  const map = { canvas: element('canvas'), title: element('h3'), pool: null, ends: [], chosen: -1 };
  map.canvas.tabIndex = 0;
  map.canvas.setAttribute('role', 'img');
  box.append(map.title, map.canvas);
  $('pools').append(box);
  const pointAt = (event) => {
    const cell = Math.floor(event.offsetY / map.cell) * map.columns + Math.floor(event.offsetX / map.cell);
    const page = Math.min(cell * map.perCell, map.pool.pages - 1);
    const index = runAt(map, page);
    if (index !== map.chosen) choose(map, index);
  };
  map.canvas.addEventListener('pointermove', pointAt);
  map.canvas.addEventListener('pointerdown', pointAt);  // a finger: it stays until the next one
  map.canvas.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && choose(map, -1));
  map.canvas.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const runs = map.pool.runs.length;
    choose(map, map.chosen < 0 && step < 0 ? runs - 1 : (map.chosen + step + runs) % runs);
  });
  new ResizeObserver(() => map.pool && draw(map)).observe(box);
  return map;
}

export function drawPageMap(answer) {
  answer.pools.forEach((pool, i) => {
    if (maps.length <= i) maps.push(makeMap());
    const map = maps[i];
    const before = map.pool?.runs[map.chosen];
    map.pool = pool;
    let end = 0;
    map.ends = pool.runs.map((run) => (end += run[0]));
    map.title.textContent = `${pool.name} · ${plural(pool.pages, 'page')} of ${bytes(pool.page_bytes)}`;
    const taken = pool.runs.reduce((sum, run) => sum + (run[1] === 'free' ? 0 : run[0]), 0);
    map.canvas.setAttribute('aria-label',
      `Pool ${pool.name}: ${count(taken)} of ${plural(pool.pages, 'page')} taken. Arrow keys step through the runs.`);
    if (before !== undefined && String(pool.runs[map.chosen]) !== String(before)) choose(map, -1);
    else draw(map);
  });
  const runs = answer.pools.reduce((sum, pool) => sum + pool.runs.length, 0);
  $('map-note').textContent = plural(runs, 'run');
}
export const redrawPageMap = () => maps.forEach(draw);
