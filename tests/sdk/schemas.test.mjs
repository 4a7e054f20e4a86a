// SPDX-License-Identifier: Apache-2.0
//
// Every kind of answer and error against OpenAI's published schemas. Additional members are allowed
// there, so ours pass. Where OpenAI's own answers break the file, and clients expect them to, the
// schema is loosened here:
//
//   completions, streamed   finish_reason and usage are null before the end
//   completions, echoed     the first token has no log-probability: null

import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';

import Ajv from 'ajv/dist/2020.js';

import {MESSAGES, PROMPT, startServer} from './server.mjs';

// OpenAPI 3.0's `nullable`, which parts of the file still use, as JSON Schema has it.
function withNull(schema) {
  if (Array.isArray(schema)) return schema.map(withNull);
  if (schema === null || typeof schema !== 'object') return schema;
  const {nullable, ...rest} = schema;
  const copy = Object.fromEntries(Object.entries(rest).map(([k, v]) => [k, withNull(v)]));
  return nullable === true ? {anyOf: [copy, {type: 'null'}]} : copy;
}

const file = withNull(JSON.parse(readFileSync(new URL('openai-schemas.json', import.meta.url))));
const orNull = (schema) => ({anyOf: [schema, {type: 'null'}]});
const completion = structuredClone(file.components.schemas.CreateCompletionResponse);
const choice = completion.properties.choices.items.properties;
choice.finish_reason = orNull(choice.finish_reason);
completion.properties.usage = orNull(completion.properties.usage);
const columns = choice.logprobs.anyOf[0].properties;
columns.token_logprobs.items = orNull(columns.token_logprobs.items);
columns.top_logprobs.items = orNull(columns.top_logprobs.items);
file.components.schemas.LooseCompletion = completion;

const ajv = new Ajv({strict: false, validateFormats: false, allErrors: true});
ajv.addSchema(file, 'openai');
function check(name, value) {
  const validate = ajv.compile({$ref: `openai#/components/schemas/${name}`});
  assert.ok(validate(value), `${name}: ${ajv.errorsText(validate.errors)}\n` +
      JSON.stringify(value).slice(0, 2000));
}

const server = await startServer();
const headers = {authorization: `Bearer ${server.key}`, 'content-type': 'application/json'};
async function ask(method, path, body, more = {}) {
  return fetch(server.url + path, {
    method, headers: {...headers, ...more}, body: typeof body === 'object' ? JSON.stringify(body) : body});
}
async function answer(path, body) {
  const reply = await ask('POST', path, body);
  assert.equal(reply.status, 200, `${path} ${JSON.stringify(body)}`);
  return reply.json();
}
async function chunks(path, body) {
  const reply = await ask('POST', path, {...body, stream: true});
  const text = await reply.text();
  const events = text.split('\n\n').filter((event) => event.startsWith('data: '));
  assert.equal(events.pop(), 'data: [DONE]');
  return events.map((event) => JSON.parse(event.slice(6)));
}

const short = {max_tokens: 6, temperature: 0};
const completions = [
  {prompt: PROMPT, ...short},
  {prompt: PROMPT, ...short, logprobs: 0},
  {prompt: PROMPT, ...short, logprobs: 5, n: 2},
  {prompt: [[1, 2], [3]], max_tokens: 0},
  {prompt: PROMPT, max_tokens: 200, temperature: 0},
];
const chats = [
  {messages: MESSAGES, ...short},
  {messages: MESSAGES, ...short, n: 2, logprobs: true, top_logprobs: 3},
  {messages: MESSAGES, ...short, logprobs: true},
  {messages: MESSAGES, max_tokens: 0},
];

test('the schemas catch what is wrong', () => {
  assert.throws(() => check('ErrorResponse', {error: {message: 'x'}}));
  assert.throws(() => check('CreateChatCompletionResponse', {id: 'x', choices: []}));
  assert.throws(() => check('CreateCompletionResponse',
                            {id: 'x', object: 'text_completion', created: 1, model: 'm',
                             choices: [{index: 0, text: '', logprobs: null, finish_reason: null}]}));
});

test('models', async () => {
  const list = await (await ask('GET', '/v1/models')).json();
  check('ListModelsResponse', list);
  check('Model', await (await ask('GET', `/v1/models/${list.data[0].id}`)).json());
});

test('completions', async () => {
  for (const body of completions) {
    check('CreateCompletionResponse', await answer('/v1/completions', body));
    for (const usage of [true, false]) {
      const stream = {...body, stream_options: {include_usage: usage}};
      for (const chunk of await chunks('/v1/completions', stream)) check('LooseCompletion', chunk);
    }
  }
  const echo = {prompt: PROMPT, ...short, echo: true, logprobs: 2};
  check('LooseCompletion', await answer('/v1/completions', echo));
  for (const chunk of await chunks('/v1/completions', echo)) check('LooseCompletion', chunk);
});

test('chats', async () => {
  for (const body of chats) {
    check('CreateChatCompletionResponse', await answer('/v1/chat/completions', body));
    for (const usage of [true, false]) {
      const stream = {...body, stream_options: {include_usage: usage}, return_progress: usage};
      for (const chunk of await chunks('/v1/chat/completions', stream)) {
        check('CreateChatCompletionStreamResponse', chunk);
      }
    }
  }
});

test('errors', async () => {
  const json = [
    [400, 'POST', '/v1/completions', '{'],
    [400, 'POST', '/v1/completions', '{"prompt": NaN}'],
    [400, 'POST', '/v1/completions', '[]'],
    [400, 'POST', '/v1/completions', {}],
    [400, 'POST', '/v1/completions', {prompt: 5}],
    [400, 'POST', '/v1/completions', {prompt: 'x', foo: 1}],
    [400, 'POST', '/v1/completions', {prompt: 'x', suffix: 'y'}],
    [400, 'POST', '/v1/completions', {prompt: 'x', max_tokens: 1e6}],
    [404, 'POST', '/v1/completions', {prompt: 'x', model: 'gpt-5'}],
    [400, 'POST', '/v1/chat/completions', {messages: 'x'}],
    [400, 'POST', '/v1/chat/completions', {messages: [{role: 'user', content: {}}]}],
    [400, 'POST', '/v1/chat/completions', {messages: MESSAGES, tools: [{}]}],
    [400, 'POST', '/tokenize', {}],
    [400, 'POST', '/detokenize', {tokens: ['a']}],
    [400, 'POST', '/apply-template', {messages: []}],
    [400, 'GET', '/cache/entries?limit=x'],
    [404, 'GET', '/v1/models/nope'],
    [404, 'GET', '/nope'],
    [405, 'GET', '/v1/chat/completions'],
    [405, 'DELETE', '/v1/models'],
    [413, 'POST', '/v1/completions', ' '.repeat(40 << 20)],
    [415, 'POST', '/v1/completions', 'x', {'content-type': 'multipart/form-data; boundary=x'}],
    [401, 'GET', '/v1/models', undefined, {authorization: 'Bearer other'}],
  ];
  for (const [status, method, path, body, more] of json) {
    let reply;
    try {
      reply = await ask(method, path, body, more);
    } catch (error) {
      // A body that is refused while it is being sent may end in a reset on the client's side.
      assert.equal(status, 413, `${method} ${path}: ${error}`);
      continue;
    }
    assert.equal(reply.status, status, `${method} ${path} ${JSON.stringify(body)?.slice(0, 80)}`);
    check('ErrorResponse', await reply.json());
  }
});
