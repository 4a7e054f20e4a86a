// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp behind HTTP the way llama-server uses it, as far as this measurement sees it:
//
//   node llama_server.mjs PACKAGES MODEL --port P [--threads 2] [--slots 4] [--context 1536]
//                                                 [--flash] [--mmap] [--no-cache]
//
// - A request takes the idle slot whose text begins most like its prompt, if more than a tenth of
//   the prompt is alike (--slot-prompt-similarity), otherwise the one that was idle for longest.
//   While no slot is idle, requests wait in the order in which they came.
// - A slot keeps its text and state. A recurrent state cannot be cut back, so llama-server keeps
//   checkpoints of it 4 + 512 and 4 tokens before a prompt's end, up to 32 in host memory, and a
//   prompt goes on from the last one that both texts share. node-llama-cpp adds one where the
//   texts part, so that the next question about one text costs the question alone.
// - --no-cache empties the slot first (cache_prompt: false).
//
// What is left out of llama-server: its cache of whole slots in host memory (--cache-ram, 8 GiB
// unless told), which no budget of state bounds.
//
//   GET /health, GET /v1/models, DELETE /cache   DELETE empties every idle slot
//   GET /stats             {"about", "batches", "evaluated_tokens", "checkpoint_bytes_max"}
//   POST /v1/completions   {"prompt": [ids], "max_tokens": n}: greedy, streamed, past an end of
//                          text; usage has the tokens that were not evaluated as cached_tokens

import http from 'node:http';
import {parseArgs} from 'node:util';

import {evaluatedBy, open} from '../peers/llama_context.mjs';

const UBATCH = 512;
const CHECKPOINTS_BEFORE_END = [4 + UBATCH, 4];
const CHECKPOINTS_MAX = 32;
const SIMILARITY_MIN = 0.1;

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    port: {type: 'string'},
    threads: {type: 'string', default: '2'},
    slots: {type: 'string', default: '4'},
    context: {type: 'string', default: '1536'},
    flash: {type: 'boolean', default: false},
    mmap: {type: 'boolean', default: false},
    'no-cache': {type: 'boolean', default: false},
  },
});
if (positionals.length !== 2 || values.port === undefined) {
  console.error('usage: node llama_server.mjs PACKAGES MODEL --port P [options]');
  process.exit(2);
}
const peer = await open({
  packages: positionals[0],
  model: positionals[1],
  threads: Number(values.threads),
  sequences: Number(values.slots),
  context: Number(values.context),
  batch: UBATCH,
  flash: values.flash,
  mmap: values.mmap,
  checkpoints: {max: CHECKPOINTS_MAX, interval: false},
});

const slots = peer.slots.map((sequence) => ({sequence, tokens: [], busy: false, used: 0}));
const waiting = [];
let clock = 0;
let checkpointBytesMax = 0;

function commonPrefix(a, b) {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) ++i;
  return i;
}

function chooseSlot(prompt) {
  const idle = slots.filter((slot) => !slot.busy);
  let best;
  let similarity = SIMILARITY_MIN;
  for (const slot of idle) {
    const alike = commonPrefix(slot.tokens, prompt) / prompt.length;
    if (alike > similarity) [best, similarity] = [slot, alike];
  }
  return best ?? idle.reduce((oldest, slot) => (slot.used < oldest.used ? slot : oldest));
}

function admit() {
  while (waiting.length > 0 && slots.some((slot) => !slot.busy)) {
    const request = waiting.shift();
    if (request.gone()) continue;
    const slot = chooseSlot(request.prompt);
    slot.busy = true;
    serve(slot, request).finally(() => {
      slot.busy = false;
      slot.used = ++clock;
      admit();
    });
  }
}

async function checkpoint(sequence) {
  await sequence.takeCheckpoint();
  const bytes = slots.reduce((sum, slot) => sum + slot.sequence.checkpointsMemoryUsage, 0);
  checkpointBytesMax = Math.max(checkpointBytesMax, bytes);
}

// Until `prompt` lacks only what the first sampled token is computed with.
async function prefill(slot, prompt) {
  const {sequence} = slot;
  await sequence.adaptStateToTokens(prompt.slice(0, -1), false);
  for (const before of CHECKPOINTS_BEFORE_END) {
    const end = prompt.length - before;
    if (sequence.nextTokenIndex >= end) continue;
    await sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(sequence.nextTokenIndex, end));
    await checkpoint(sequence);
  }
}

async function serve(slot, request) {
  const {sequence} = slot;
  const {prompt} = request;
  try {
    if (values['no-cache']) await sequence.clearHistory();
    const before = evaluatedBy(sequence);
    await peer.together(async () => {
      await prefill(slot, prompt);
      slot.tokens = prompt.slice();
      const rest = prompt.slice(sequence.nextTokenIndex);
      let evaluated = 0;
      let count = 0;
      for await (const token of sequence.evaluate(rest, {temperature: 0, yieldEogToken: true})) {
        if (++count === 1) evaluated = evaluatedBy(sequence) - before;
        request.send(peer.model.detokenize([token], true));
        if (count === request.maxTokens || request.gone()) break;
        slot.tokens.push(token);
      }
      request.finish(count, prompt.length - evaluated);
    });
  } catch (error) {
    request.fail(error);
    slot.tokens = [];
    await sequence.clearHistory().catch(() => {});
  }
}

function streamTo(response, prompt, maxTokens) {
  const event = (object) => response.write(`data: ${JSON.stringify(object)}\n\n`);
  return {
    prompt,
    maxTokens,
    gone: () => response.destroyed,
    send: (text) => event({choices: [{index: 0, text, finish_reason: null}]}),
    finish(count, cached) {
      event({choices: [{index: 0, text: '', finish_reason: 'length'}]});
      event({choices: [], usage: {
        prompt_tokens: prompt.length,
        completion_tokens: count,
        total_tokens: prompt.length + count,
        prompt_tokens_details: {cached_tokens: cached},
      }});
      response.end('data: [DONE]\n\n');
    },
    fail(error) {
      event({error: {message: String(error?.message ?? error)}});
      response.end();
    },
  };
}

function reply(response, status, object) {
  response.writeHead(status, {'Content-Type': 'application/json'});
  response.end(JSON.stringify(object));
}

function refuse(response, message) {
  reply(response, 400, {error: {message}});
}

async function complete(message, response) {
  let body = '';
  for await (const piece of message.setEncoding('utf8')) body += piece;
  let request;
  try {
    request = JSON.parse(body);
  } catch (error) {
    return refuse(response, `expected JSON: ${error.message}`);
  }
  const {prompt, max_tokens: maxTokens} = request;
  const vocabulary = peer.about.vocabulary;
  const isId = (id) => Number.isInteger(id) && id >= 0 && id < vocabulary;
  if (!Array.isArray(prompt) || prompt.length === 0 || !prompt.every(isId)) {
    return refuse(response, `prompt: expected ids below ${vocabulary}`);
  }
  if (!Number.isInteger(maxTokens) || maxTokens < 1) {
    return refuse(response, 'max_tokens: expected a whole number from 1 on');
  }
  if (prompt.length + maxTokens > peer.about.context) {
    return refuse(response, `expected at most ${peer.about.context} tokens in all, found ` +
                            `${prompt.length} of the prompt and ${maxTokens} to come`);
  }
  response.writeHead(200, {'Content-Type': 'text/event-stream'});
  waiting.push(streamTo(response, prompt, maxTokens));
  admit();
}

async function clear() {
  for (const slot of slots.filter(({busy}) => !busy)) {
    slot.busy = true;
    await slot.sequence.clearHistory();
    slot.tokens = [];
    slot.busy = false;
  }
  admit();
}

const routes = {
  'GET /health': (_, response) => reply(response, 200, {status: 'ok'}),
  'GET /v1/models': (_, response) => reply(response, 200, {
    data: [{id: 'llama.cpp', meta: {n_vocab: peer.about.vocabulary}}],
  }),
  'GET /stats': (_, response) => reply(response, 200, {
    about: peer.about,
    batches: peer.batches(),
    evaluated_tokens: peer.slots.reduce((sum, slot) => sum + evaluatedBy(slot), 0),
    checkpoint_bytes_max: checkpointBytesMax,
  }),
  'DELETE /cache': async (_, response) => {
    await clear();
    reply(response, 200, {});
  },
  'POST /v1/completions': complete,
};

const server = http.createServer((message, response) => {
  response.socket?.setNoDelay(true);
  const route = routes[`${message.method} ${message.url}`];
  if (route === undefined) {
    reply(response, 404, {error: {message: `${message.method} ${message.url}: not here`}});
    return;
  }
  Promise.resolve(route(message, response)).catch(() => response.destroy());
});
server.on('error', (error) => {
  console.error(`Error: ${error.message}`);
  process.exit(5);
});
process.on('SIGTERM', () => process.exit(0));
server.listen(Number(values.port), '127.0.0.1');
