// SPDX-License-Identifier: Apache-2.0

import assert from 'node:assert/strict';
import test from 'node:test';

import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {APICallError, generateText, streamText} from 'ai';

import {ANSWER, LOG, startServer} from './server.mjs';

const server = await startServer();
const provider = createOpenAICompatible(
    {name: 'tessera', baseURL: `${server.url}/v1`, apiKey: server.key, includeUsage: true});
const reply = await fetch(`${server.url}/v1/models`,
                          {headers: {authorization: `Bearer ${server.key}`}});
const model = (await reply.json()).data[0].id;
const question = {
  system: LOG, prompt: 'Where is the red kite?', maxOutputTokens: 20, temperature: 0,
  stopSequences: ['\n'], maxRetries: 0,
};

test('text is generated, and the next time from the cache', async () => {
  const first = await generateText({model: provider(model), ...question});
  assert.equal(first.text, ANSWER);
  assert.equal(first.finishReason, 'stop');
  const second = await generateText({model: provider(model), ...question});
  assert.equal(second.text, ANSWER);
  assert.equal(second.usage.cachedInputTokens, second.usage.inputTokens);
});

test('text streams with its usage', async () => {
  const result = streamText({model: provider(model), ...question});
  let text = '';
  for await (const piece of result.textStream) text += piece;
  assert.equal(text, ANSWER);
  assert.ok((await result.usage).outputTokens > 0);
  assert.equal(await result.finishReason, 'stop');
});

test('a completion model answers', async () => {
  const result = await generateText({
    model: provider.completionModel(model), prompt: 'Hello', maxOutputTokens: 5, maxRetries: 0});
  assert.equal(result.finishReason, 'length');
});

test('an error is an APICallError with our message', async () => {
  await assert.rejects(generateText({model: provider('nope'), ...question}), (error) => {
    assert.ok(APICallError.isInstance(error));
    assert.equal(error.statusCode, 404);
    assert.match(error.message, /this server has/);
    return true;
  });
});
