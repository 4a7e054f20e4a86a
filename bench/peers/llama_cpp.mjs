// SPDX-License-Identifier: Apache-2.0
//
// Measures llama.cpp on a GGUF file: prefill of P random tokens, and greedy decode of D tokens in
// each of N sequences at once, R times over in one process after one warm-up.
//
//   node llama_cpp.mjs PACKAGES MODEL [--threads 2] [--prefill 512] [--decode 64] [--sequences 1]
//                                     [--repeats 3] [--seed 1] [--flash]
//
// PACKAGES is the folder whose node_modules holds node-llama-cpp (see run.py). One JSON line:
//   {"engine", "vocabulary", "version", "threads", "sequences", "prefill_tps": [..],
//    "decode_tps": [..]}
//
// Prefill is timed as one evaluation of the P tokens without sampling; decode from the first token
// yielded to the last, so it holds D-1 evaluations and the sampling between them, as a user sees.

import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';
import {parseArgs} from 'node:util';

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    threads: {type: 'string', default: '2'},
    prefill: {type: 'string', default: '512'},
    decode: {type: 'string', default: '64'},
    sequences: {type: 'string', default: '1'},
    repeats: {type: 'string', default: '3'},
    seed: {type: 'string', default: '1'},
    flash: {type: 'boolean', default: false},
  },
});
if (positionals.length !== 2) {
  console.error('usage: node llama_cpp.mjs PACKAGES MODEL [options]');
  process.exit(2);
}
const [packages, modelPath] = positionals;
const threads = Number(values.threads);
const prefill = Number(values.prefill);
const decode = Number(values.decode);
const sequences = Number(values.sequences);
const repeats = Number(values.repeats);

const require = createRequire(path.resolve(packages, 'package.json'));
const entry = require.resolve('node-llama-cpp');
const {getLlama} = await import(pathToFileURL(entry).href);

// package.json is not among the package's exports.
const version = JSON.parse(fs.readFileSync(
    path.resolve(packages, 'node_modules/node-llama-cpp/package.json'), 'utf8')).version;

// The same stream as run.py's: x' = 1664525·x + 1013904223 mod 2^32, token x' mod vocabulary.
function randomTokens(count, vocabulary, seed) {
  const tokens = [];
  let x = seed >>> 0;
  for (let i = 0; i < count; ++i) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    tokens.push(x % vocabulary);
  }
  return tokens;
}

const seconds = () => Number(process.hrtime.bigint()) / 1e9;

const llama = await getLlama({gpu: false, build: 'never', maxThreads: threads, logLevel: 'error',
                              progressLogs: false});
const model = await llama.loadModel({modelPath: path.resolve(modelPath), useMmap: false});
const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
const context = await model.createContext({
  contextSize: prefill + decode + 64,
  batchSize: Math.max(prefill, sequences),
  sequences,
  threads,
  flashAttention: values.flash,
});
const slots = Array.from({length: sequences}, () => context.getSequence());
const prompt = randomTokens(prefill, vocabulary, Number(values.seed));

async function decodeOne(slot, first) {
  const times = [];
  const stream = slot.evaluate([first], {temperature: 0, yieldEogToken: true});
  for await (const token of stream) {
    times.push(seconds());
    if (times.length === decode) break;
  }
  return {begin: times[0], end: times.at(-1)};
}

async function round() {
  for (const slot of slots) await slot.clearHistory();
  const begin = seconds();
  await slots[0].evaluateWithoutGeneratingNewTokens(prompt);
  const prefillSeconds = seconds() - begin;
  // The other sequences get the same prompt, outside the measured time.
  for (const slot of slots.slice(1)) await slot.evaluateWithoutGeneratingNewTokens(prompt);
  const spans = await Promise.all(slots.map((slot, i) => decodeOne(slot, prompt[i])));
  const from = Math.min(...spans.map((span) => span.begin));
  const to = Math.max(...spans.map((span) => span.end));
  return {prefill: prefill / prefillSeconds, decode: sequences * (decode - 1) / (to - from)};
}

await round();
const rounds = [];
for (let i = 0; i < repeats; ++i) rounds.push(await round());
console.log(JSON.stringify({
  engine: 'llama.cpp',
  vocabulary,
  version: `node-llama-cpp ${version}`,
  threads,
  sequences,
  prefill_tps: rounds.map((one) => one.prefill),
  decode_tps: rounds.map((one) => one.decode),
}));
await context.dispose();
await model.dispose();
await llama.dispose();
