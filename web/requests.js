// SPDX-License-Identifier: Apache-2.0
//
// What each of the last requests waited for: its time from when it was submitted, on one scale for
// all that are shown, and how much of its prompt was there already.

import { $, count, drawBar, drawLegend, element, milliseconds, percent, plural, setFigure } from './draw.js';

const kPhases = [
  ['queue_ms', 'queue', '', 'Queue'],
  ['prefill_ms', 'ssm', '', 'Prefill'],
  ['decode_ms', 'attention', '', 'Decode'],
];

drawLegend($('waterfall-legend'), [
  ...kPhases.map(([, kind, style, name]) => ({ kind, style, name })),
  { kind: 'conv', style: 'pale', name: 'Prompt tokens that were cached' },
]);

const total = (request) => request.queue_ms + request.prefill_ms + request.decode_ms;

function makeRow() {
  const row = element('li');
  const bars = element('div', 'bars');
  const time = element('div', 'bar');
  const prompt = element('div', 'bar thin');
  for (const bar of [time, prompt]) bar.setAttribute('role', 'img');
  bars.append(time, prompt);
  row.append(element('span', 'id'), bars, element('span', 'tokens'));
  return row;
}

function fillRow(row, request, longest) {
  const [id, bars, tokens] = row.children;
  row.className = request.phase !== 'ended' ? 'live' : request.finish === 'error' ? 'failed' : '';
  id.textContent = `#${request.id}`;
  drawBar(bars.children[0], kPhases.map(([key, kind, style, name]) => (
    { part: request[key], kind, style, label: `${name} ${milliseconds(request[key])}` })), longest);
  drawBar(bars.children[1], [{
    part: request.cached_tokens,
    kind: 'conv',
    style: 'pale',
    label: `${count(request.cached_tokens)} of ${plural(request.prompt_tokens, 'prompt token')} cached`,
  }], request.prompt_tokens);
  const what = request.phase === 'ended' ? milliseconds(total(request)) : request.phase;
  const how = request.finish === 'cancelled' || request.finish === 'error' ? `, ${request.finish}` : '';
  tokens.replaceChildren(`${what}${how}`, element('br'),
    `${count(request.prompt_tokens)} in · ${percent(request.cached_tokens, request.prompt_tokens)} cached · ${count(request.completion_tokens)} out`);
  const reasons = request.computed.map((range) => `${range.from}–${range.to} ${range.reason}`);
  row.title = reasons.length > 0 ? `Computed: ${reasons.join(', ')}` : 'Nothing of the prompt was computed';
}

export function drawRequests(list) {
  const shown = [...list.live].reverse().concat(list.ended);
  const rows = $('waterfall');
  $('waterfall-note').textContent = shown.length === 0 ? ''
    : `newest first, up to ${milliseconds(Math.max(...shown.map(total)))} from submission`;
  if (shown.length === 0) {
    const empty = element('li', 'empty', 'No request yet. Send one below, or with any OpenAI client.');
    if (!rows.querySelector('.empty')) rows.replaceChildren(empty);
    return;
  }
  rows.querySelector('.empty')?.remove();
  while (rows.children.length > shown.length) rows.lastElementChild.remove();
  while (rows.children.length < shown.length) rows.append(makeRow());
  const longest = Math.max(...shown.map(total));
  shown.forEach((request, i) => fillRow(rows.children[i], request, longest));
}

let last = null;  // totals and when they were read

export function drawLoad(cache) {
  const now = performance.now();
  setFigure($('load'), `${count(cache.running)} running`);
  $('load-note').textContent = `${count(cache.waiting)} waiting, ${count(cache.totals.requests_finished)} finished`;
  const { prompt_tokens: prompt, completion_tokens: completion } = cache.totals;
  if (last !== null && prompt >= last.prompt && now > last.now) {
    const seconds = (now - last.now) / 1000;
    const [computed, generated] = [(prompt - last.prompt) / seconds, (completion - last.completion) / seconds];
    setFigure($('rate'), `${count(Math.round(generated))} generated`);
    $('rate-note').textContent = `${count(Math.round(computed))} of prompts computed`;
  }
  last = { prompt, completion, now };
}
