// SPDX-License-Identifier: Apache-2.0
//
// The wire as curl sees it.

import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import test from 'node:test';
import {promisify} from 'node:util';

import {ANSWER, MESSAGES, startServer} from './server.mjs';

const run = promisify(execFile);
const server = await startServer();

async function curl(path, ...args) {
  const {stdout} = await run('curl', ['-sS', '-i', '-H', `Authorization: Bearer ${server.key}`,
                                      ...args, server.url + path], {encoding: 'utf8'});
  const end = stdout.indexOf('\r\n\r\n');
  return {head: stdout.slice(0, end).toLowerCase(), body: stdout.slice(end + 4)};
}
const post = (body) => ['-H', 'Content-Type: application/json', '-d', JSON.stringify(body)];

test('a whole answer has a length and is JSON', async () => {
  const {head, body} = await curl('/v1/chat/completions', ...post({messages: MESSAGES, max_tokens: 3}));
  assert.match(head, /^http\/1\.1 200/);
  assert.match(head, /content-type: application\/json/);
  assert.match(head, /content-length: \d+/);
  JSON.parse(body);
});

test('a stream is events, one a line, that end with [DONE]', async () => {
  const {head, body} = await curl('/v1/chat/completions', '-N', ...post({
    messages: MESSAGES, max_tokens: 20, temperature: 0, stop: '\n', stream: true}));
  assert.match(head, /content-type: text\/event-stream/);
  assert.match(head, /cache-control: no-cache/);
  const events = body.split('\n\n');
  assert.equal(events.pop(), '');
  assert.equal(events.pop(), 'data: [DONE]');
  const deltas = events.map((event) => JSON.parse(event.replace(/^data: /, '')).choices[0]);
  assert.deepEqual(Object.keys(deltas[0].delta), ['role', 'content', 'refusal']);
  assert.equal(deltas.map(({delta}) => delta.content ?? '').join(''), ANSWER);
  assert.equal(deltas.at(-1).finish_reason, 'stop');
  assert.ok(deltas.slice(0, -1).every(({finish_reason}) => finish_reason === null));
});

test('a prompt can be counted, rendered, cut into tokens and put together again', async () => {
  const json = async (path, body) => JSON.parse((await curl(path, ...post(body))).body);
  const {prompt} = await json('/apply-template', {messages: MESSAGES});
  const {tokens} = await json('/tokenize', {content: prompt});
  assert.equal((await json('/detokenize', {tokens})).content, prompt);
  const {input_tokens: counted} =
      await json('/v1/chat/completions/input_tokens', {messages: MESSAGES});
  assert.equal(counted, (await json('/tokenize', {prompt})).count);
});
