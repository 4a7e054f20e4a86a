// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints as points: how deep in their prompt they lie, and how long nobody has used them,
// counted in look-ups. What evicts first lies low and is not held.

import { $, bytes, colour, count, drawLegend, plural, prepare } from './draw.js';

const canvas = $('checkpoints');
const kLeft = 64, kRight = 26, kTop = 12, kBottom = 34;
let points = [];  // {x, y, entry}
let entries = [];
let chosen = -1;

drawLegend($('timeline-legend'), [
  { kind: 'ssm', style: 'round', name: 'in use' },
  { kind: 'ssm', style: 'round hollow', name: 'cached' },
  { kind: 'row', style: 'round', name: 'with the prompt’s last row' },
]);

function describe(entry) {
  const words = entry.text === null ? 'salted' : `“${entry.text.trim().slice(0, 90)}…”`;
  const holds = ['held', 'pinned', 'retained', 'spare'].filter((name) => entry[name]);
  const use = entry.lookups_since_use === 0 ? 'used by the last prompt'
    : `last used ${plural(entry.lookups_since_use, 'prompt')} ago`;
  return [`After ${plural(entry.tokens, 'token')} of ${words}`, use, plural(entry.hits, 'hit'),
    bytes(entry.bytes), ...holds].join(' · ');
}

function tell() {
  $('checkpoint').textContent = chosen >= 0 && chosen < entries.length ? describe(entries[chosen])
    : entries.length > 0 ? 'Point at a checkpoint, or step through them with the arrow keys, to see what it is.'
      : 'A checkpoint is the recurrent state at one position: what a prompt can start from.';
}

// 1, 2 or 5 times a power of ten that cuts `most` in at most `steps`.
function niceStep(most, steps) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, most / steps)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => most / step <= steps);
}

function drawAxes(context, width, height, deepest, oldest, at) {
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  context.fillStyle = colour('quiet');
  context.strokeStyle = colour('line');
  context.lineWidth = 1;
  context.textAlign = 'center';
  const step = niceStep(deepest, width < 420 ? 4 : 7);
  for (let tokens = 0; tokens <= deepest; tokens += step) {
    const x = Math.round(at.x(tokens)) + 0.5;
    context.beginPath();
    context.moveTo(x, kTop);
    context.lineTo(x, height - kBottom + 4);
    context.stroke();
    context.fillText(count(tokens), x, height - kBottom + 17);
  }
  context.fillText('position in the prompt, tokens', (kLeft + width - kRight) / 2, height - 3);
  context.textAlign = 'right';
  for (const ago of [0, 1, 10, 100, 1000, 10000, 100000].filter((n) => n <= oldest)) {
    context.fillText(ago === 0 ? 'last' : count(ago), kLeft - 12, at.y(ago) + 4);
  }
  context.save();
  context.translate(11, (kTop + height - kBottom) / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = 'center';
  context.fillText('used, prompts ago', 0, 0);
  context.restore();
}

function drawPoint(context, { x, y, entry }, isChosen) {
  const tone = colour(entry.row ? 'row' : 'ssm');
  context.beginPath();
  context.arc(x, y, isChosen ? 7 : 5, 0, 2 * Math.PI);
  context.fillStyle = entry.held ? tone : colour('card');
  context.strokeStyle = isChosen ? colour('ink') : tone;
  context.lineWidth = 2;
  context.fill();
  context.stroke();
}

function draw() {
  const { width, height } = canvas.getBoundingClientRect();
  if (width === 0) return;
  const context = prepare(canvas, width, height);
  const deepest = Math.max(64, ...entries.map((entry) => entry.tokens));
  const oldest = Math.max(10, ...entries.map((entry) => entry.lookups_since_use));
  const log = (n) => Math.log10(n + 1);
  const at = {
    x: (tokens) => kLeft + (tokens / deepest) * (width - kLeft - kRight),
    y: (ago) => kTop + 8 + (log(ago) / log(oldest)) * (height - kTop - kBottom - 16),
  };
  drawAxes(context, width, height, deepest, oldest, at);
  points = entries.map((entry) => ({ x: at.x(entry.tokens), y: at.y(entry.lookups_since_use), entry }));
  for (let i = points.length - 1; i >= 0; --i) if (i !== chosen) drawPoint(context, points[i], false);
  if (chosen >= 0 && chosen < points.length) drawPoint(context, points[chosen], true);
}

function choose(index) {
  chosen = index;
  tell();
  draw();
}

function pointAt(event) {
  const box = canvas.getBoundingClientRect();
  const far = points.map(({ x, y }) => Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top));
  const nearest = far.indexOf(Math.min(...far));
  const found = far[nearest] < 22 ? nearest : -1;
  if (found !== chosen) choose(found);
}
canvas.addEventListener('pointermove', pointAt);
canvas.addEventListener('pointerdown', pointAt);  // a finger: it stays until the next one
canvas.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && choose(-1));
canvas.addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step === undefined || entries.length === 0) return;
  event.preventDefault();
  choose((chosen + step + entries.length) % entries.length);
});
new ResizeObserver(draw).observe(canvas);

export function drawCheckpoints(answer) {
  const old = entries[chosen];
  entries = answer.entries.filter((entry) => entry.checkpoint);
  chosen = old === undefined ? -1 : entries.findIndex((entry) => entry.id === old.id && entry.tokens === old.tokens);
  $('timeline-note').textContent = entries.length === 0 ? 'none yet'
    : answer.more ? `the ${count(entries.length)} used last` : count(entries.length);
  canvas.setAttribute('aria-label', entries.length === 0 ? 'No checkpoints yet'
    : `${plural(entries.length, 'checkpoint')}: position in the prompt against last use. Arrow keys step through them.`);
  tell();
  draw();
}

// What a page of the map belongs to.
export function describeCheckpoint(id) {
  const entry = entries.find((candidate) => candidate.id === id);
  return entry === undefined ? '' : describe(entry);
}
export const redrawCheckpoints = draw;
