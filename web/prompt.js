// SPDX-License-Identifier: Apache-2.0
//
// The prompt box: streams a completion, and says how much of its prompt was known already.

import { $, count, drawBar, milliseconds, plural } from './draw.js';
import { kReasons } from './reuse.js';
import { stream } from './server.js';

const kExample = 'Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. '
  + 'Rosa counted 31 drums.\nQ: Where is the red kite?\nA:';

let running = null;  // an AbortController

function setRunning(controller) {
  running = controller;
  $('send').disabled = controller !== null;
  $('stop').disabled = controller === null;
}

function drawReuse(reuse, usage, timings) {
  const prompt = usage.prompt_tokens;
  const styleOf = (key) => kReasons.find((reason) => reason.key === key);
  drawBar($('answer-bar'), [
    { part: reuse.reused, ...styleOf('reused'), label: `Reused: ${plural(reuse.reused, 'token')}` },
    ...reuse.computed.map(({ from, to, reason }) => (
      { part: to - from, ...styleOf(reason), label: `Computed, ${reason}: ${plural(to - from, 'token')}` })),
  ], prompt);
  const why = reuse.computed.map(({ from, to, reason }) => `${count(to - from)} ${reason.replace('_', ' ')}`);
  const known = reuse.from_row ? 'The whole prompt was known: only the output head ran.'
    : `${count(reuse.reused)} of ${plural(prompt, 'prompt token')} reused${why.length > 0 ? `, computed: ${why.join(', ')}` : ''}.`;
  $('answer-note').textContent = `${known} First token after ${milliseconds(timings.prompt_ms)}, `
    + `${plural(usage.completion_tokens, 'token')} in ${milliseconds(timings.prompt_ms + timings.predicted_ms)}.`;
}

async function ask(body, signal) {
  const answer = $('answer');
  let text = '';
  let reuse = null, usage = null, timings = null;
  await stream('/v1/completions', body, signal, (event) => {
    for (const choice of event.choices) {
      text += choice.text;
      reuse = choice.reuse ?? reuse;
    }
    timings = event.timings ?? timings;
    usage = event.usage ?? usage;
    answer.textContent = text;
    answer.scrollTop = answer.scrollHeight;
  });
  if (reuse !== null && usage !== null) drawReuse(reuse, usage, timings);
}

$('ask-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  if (running !== null) return;
  const controller = new AbortController();
  setRunning(controller);
  $('answer').textContent = '';
  $('answer-note').textContent = '\u00a0';
  drawBar($('answer-bar'), [], 0);
  try {
    await ask({
      prompt: $('prompt').value,
      max_tokens: Number($('max-tokens').value),
      temperature: Number($('temperature').value),
      stream: true,
      stream_options: { include_usage: true },
    }, controller.signal);
  } catch (error) {
    $('answer-note').textContent = error.name === 'AbortError' ? 'Stopped.' : error.message;
  }
  setRunning(null);
});
$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('ask-form').requestSubmit();
});
$('stop').addEventListener('click', () => running?.abort());
$('example').addEventListener('click', () => {
  $('prompt').value = kExample;
  $('prompt').focus();
});
