// SPDX-License-Identifier: Apache-2.0
//
// How much of the prompts since the start was reused, and why the rest was computed.

import { $, count, drawBar, element, percent, plural, setFigure, swatch } from './draw.js';

// Reused first, then by what somebody could do about it.
export const kReasons = [
  { key: 'reused', kind: 'conv', style: '', text: 'started from kept state' },
  { key: 'cold', kind: 'attention', style: '', text: 'nobody had sent them before' },
  { key: 'diverged', kind: 'attention', style: 'pale', text: 'the known prefix went on another way' },
  { key: 'no_checkpoint', kind: 'ssm', style: '', text: 'attention kept, no recurrent state there' },
  { key: 'below_grid', kind: 'ssm', style: 'pale', text: 'the checkpoint grid allows none there' },
  { key: 'evicted', kind: 'row', style: '', text: 'was kept, made room for other state' },
  { key: 'salt', kind: 'reserved', style: '', text: 'isolated by a salt or key' },
  { key: 'disabled', kind: 'draining', style: '', text: 'reuse off, or a whole run asked for' },
];

const title = (key) => (key[0].toUpperCase() + key.slice(1)).replace('_', ' ');

function drawReasons(tokens, all) {
  const body = $('reasons');
  if (body.children.length === 0) {
    for (const { key, kind, style, text } of kReasons) {
      const row = element('tr');
      const head = element('th');
      head.scope = 'row';
      head.append(swatch(kind, style), title(key));
      row.append(head, element('td', '', text), element('td'), element('td'));
      body.append(row);
    }
  }
  kReasons.forEach(({ key }, i) => {
    const row = body.children[i];
    row.className = tokens[key] > 0 ? '' : 'none';
    row.children[2].textContent = count(tokens[key]);
    row.children[3].textContent = percent(tokens[key], all);
  });
}

export function drawReuse(reuse) {
  const tokens = { reused: reuse.reused_tokens, ...reuse.computed_tokens };
  const all = reuse.prompt_tokens;
  drawBar($('reuse-bar'), kReasons.map(({ key, kind, style }) => (
    { part: tokens[key], kind, style, label: `${title(key)}: ${plural(tokens[key], 'token')}` })), all);
  drawReasons(tokens, all);
  setFigure($('hit'), percent(reuse.reused_tokens, all));
  $('hit-note').textContent = reuse.lookups === 0 ? 'no prompt so far'
    : `${count(reuse.hits)} of ${plural(reuse.lookups, 'prompt')} hit`;
  $('reuse-note').textContent = `${plural(all, 'token')} since the start`;
}
