// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import test from 'node:test';

import OpenAI from 'openai';

import {ANSWER, MESSAGES, PROMPT, startServer} from './server.mjs';

const server = await startServer();
const client = new OpenAI({baseURL: `${server.url}/v1`, apiKey: server.key, maxRetries: 0});
const models = await client.models.list();
const model = models.data[0].id;

test('models are listed and found', async () => {
  assert.equal(models.data.length, 1);
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve('nope'), OpenAI.NotFoundError);
});

test('a completion answers, with its options', async () => {
  const answer = await client.completions.create({
    model, prompt: PROMPT, max_tokens: 20, temperature: 0, stop: '\n', logprobs: 2, user: 'u'});
  assert.equal(answer.choices[0].text, ANSWER);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.choices[0].logprobs.tokens.join(''), ANSWER + '\n');
  const several = await client.completions.create({
    model, prompt: [PROMPT, 'Q:'], n: 2, best_of: 2, echo: true, max_tokens: 4, seed: 1});
  assert.equal(several.choices.length, 4);
  assert.ok(several.choices[1].text.startsWith(PROMPT));
});

test('a completion streams the same text', async () => {
  const stream = await client.completions.create({
    model, prompt: PROMPT, max_tokens: 20, temperature: 0, stop: '\n', stream: true,
    stream_options: {include_usage: true}});
  let text = '';
  let usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, ANSWER);
  assert.ok(usage.completion_tokens > 0);
});

test('a chat answers', async () => {
  const answer = await client.chat.completions.create({
    model, messages: MESSAGES, max_completion_tokens: 20, temperature: 0, stop: ['\n'],
    logprobs: true, top_logprobs: 2});
  assert.equal(answer.choices[0].message.content, ANSWER);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  assert.ok(answer.usage.total_tokens > 0);
});

test('a chat goes on, and reuses what was said', async () => {
  const first = await client.chat.completions.create({
    model, messages: MESSAGES, max_tokens: 8, temperature: 0});
  const second = await client.chat.completions.create({
    model, max_tokens: 8, temperature: 0,
    messages: [...MESSAGES, first.choices[0].message,
               {role: 'user', content: [{type: 'text', text: 'Who counted drums?'}]}]});
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > 50);
});

test('a chat streams, with the helper that gathers it', async () => {
  const runner = client.chat.completions.stream({
    model, messages: MESSAGES, max_tokens: 20, temperature: 0, stop: '\n',
    stream_options: {include_usage: true}});
  let pieces = 0;
  for await (const chunk of runner) pieces += chunk.choices.length;
  const whole = await runner.finalChatCompletion();
  assert.ok(pieces > 3);
  assert.equal(whole.choices[0].message.content, ANSWER);
  assert.equal((await runner.totalUsage()).completion_tokens, whole.usage.completion_tokens);
});

test('an aborted stream ends, and what it ran too', async () => {
  const stream = await client.chat.completions.create({
    model, messages: MESSAGES, stream: true, max_tokens: 4000, ignore_eos: true});
  let chunks = 0;
  for await (const _ of stream) {
    if (++chunks === 5) stream.controller.abort();
  }
  assert.ok(chunks >= 5 && chunks < 100);
  for (let i = 0; ; ++i) {
    const reply = await fetch(`${server.url}/cache`,
                              {headers: {authorization: `Bearer ${server.key}`}});
    if ((await reply.json()).running === 0) break;
    assert.ok(i < 200, 'the request runs on');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
});

test('errors are exceptions of their kind, with code and parameter', async () => {
  const chat = (body) => client.chat.completions.create({model, messages: MESSAGES, ...body});
  await assert.rejects(chat({temperature: 5}), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.code, 'invalid_value');
    assert.match(error.message, /0 to 2, got 5/);
    return true;
  });
  await assert.rejects(chat({model: 'gpt-5'}), OpenAI.NotFoundError);
  await assert.rejects(chat({response_format: {type: 'json_object'}}), OpenAI.BadRequestError);
  await assert.rejects(chat({messages: []}), OpenAI.BadRequestError);
  const stranger = new OpenAI({baseURL: `${server.url}/v1`, apiKey: 'other', maxRetries: 0});
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});
