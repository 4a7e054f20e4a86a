// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp behind a pipe: one model and one context of SEQUENCES slots, driven by JSON lines on
// stdin, answered by JSON lines on stdout. llama.py starts it and says what is timed.
//
//   node llama_cpp.mjs PACKAGES MODEL [--threads 2] [--sequences 1] [--context 640] [--batch 512]
//                                     [--flash] [--mmap]
//
// PACKAGES is the folder whose node_modules holds node-llama-cpp. The first line says what runs:
//   {"ready": {"version", "llama_cpp", "vocabulary", "threads", "load_s", "flash", "mmap"}}
// Then one answer per request, or {"error": "..."}:
//   {"op": "generate", "prompts": [[ids]..], "tokens": D}
//       → {"times": [[seconds]..], "ids": [[ids]..], "evaluated": n, "batches": n}
//       Every slot is emptied first, outside the measured time. Time 0 is when the prompts are
//       handed over, all at once; one time per token, when the caller has it.
//   {"op": "ask", "shared": [ids], "rest": [ids], "tokens": D}  (slot 0; same answer)
//       The slot keeps what it knows of `shared`; whatever is missing is evaluated inside the
//       measured time, and a checkpoint is taken where `shared` ends: a recurrent state cannot be
//       cut back, so without the checkpoint every question would cost the whole text again.
//   {"op": "tokenize", "text": s} → {"ids": [..]}
//   {"op": "detokenize", "ids": [..]} → {"text": s}
//
// `evaluated` counts the prompt's tokens that went through the model; `batches` the calls of
// llama_decode, so that batches / tokens shows whether the sequences stayed together.

import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import {pathToFileURL} from 'node:url';
import {parseArgs} from 'node:util';

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    threads: {type: 'string', default: '2'},
    sequences: {type: 'string', default: '1'},
    context: {type: 'string', default: '640'},
    batch: {type: 'string', default: '512'},
    flash: {type: 'boolean', default: false},
    mmap: {type: 'boolean', default: false},
  },
});
if (positionals.length !== 2) {
  console.error('usage: node llama_cpp.mjs PACKAGES MODEL [options]');
  process.exit(2);
}
const [packages, modelPath] = positionals;
const threads = Number(values.threads);

const require = createRequire(path.resolve(packages, 'package.json'));
const {getLlama} = await import(pathToFileURL(require.resolve('node-llama-cpp')).href);
// package.json is not among the package's exports.
const version = JSON.parse(fs.readFileSync(
    path.resolve(packages, 'node_modules/node-llama-cpp/package.json'), 'utf8')).version;

const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const begin = seconds();

const llama = await getLlama({gpu: false, build: 'never', maxThreads: threads, logLevel: 'error',
                              progressLogs: false});
const model = await llama.loadModel({modelPath: path.resolve(modelPath), useMmap: values.mmap});

// The batches llama_decode gets: as many waiting tokens as fit, first come first served.
//
// node-llama-cpp asks for the next batch a few turns of the microtask queue before the sequence it
// served last has handed in its next token, and so would leave one of N behind in every batch. An
// empty answer makes it ask again after some turns; all of them together are what llama.cpp can do.
let batches = 0;
let active = 0;  // sequences that will hand in another token
let asked = 0;
function fill({items, size}) {
  if (items.length < active && ++asked <= 100) return [];
  asked = 0;
  ++batches;
  let left = size;
  return items.map((item) => {
    const processAmount = Math.min(item.tokens.length, left);
    left -= processAmount;
    return {item, processAmount};
  }).filter(({processAmount}) => processAmount > 0);
}

const context = await model.createContext({
  contextSize: Number(values.context),
  batchSize: Number(values.batch),
  sequences: Number(values.sequences),
  threads,
  flashAttention: values.flash,
  batching: {itemPrioritizationStrategy: fill},
});
const slots = Array.from({length: Number(values.sequences)}, () => context.getSequence());

// Tokens that went through the model so far. The last one of a prompt counts as output there.
const evaluatedBy = (slot) => slot.tokenMeter.usedInputTokens + slot.tokenMeter.usedOutputTokens;

async function decode(slot, prompt, count, start) {
  const before = evaluatedBy(slot);
  const times = [];
  const ids = [];
  let evaluated = 0;
  ++active;
  try {
    for await (const token of slot.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
      times.push(seconds() - start);
      ids.push(token);
      if (ids.length === 1) evaluated = evaluatedBy(slot) - before;
      if (ids.length === count) break;
    }
  } finally {
    --active;
  }
  return {times, ids, evaluated};
}

async function generate({prompts, tokens}) {
  if (prompts.length > slots.length) {
    throw new Error(`${prompts.length} prompts, ${slots.length} slots`);
  }
  for (const slot of slots) await slot.clearHistory();
  batches = 0;
  const start = seconds();
  const all = await Promise.all(
      prompts.map((prompt, i) => decode(slots[i], prompt, tokens, start)));
  return {
    times: all.map((one) => one.times),
    ids: all.map((one) => one.ids),
    evaluated: all.reduce((sum, one) => sum + one.evaluated, 0),
    batches,
  };
}

async function ask({shared, rest, tokens}) {
  const [slot] = slots;
  batches = 0;
  const start = seconds();
  const before = evaluatedBy(slot);
  await slot.adaptStateToTokens(shared, false);
  const missing = shared.slice(slot.nextTokenIndex);
  if (missing.length > 0) await slot.evaluateWithoutGeneratingNewTokens(missing);
  await slot.takeCheckpoint();
  const prepared = evaluatedBy(slot) - before;
  const one = await decode(slot, rest, tokens, start);
  return {times: [one.times], ids: [one.ids], evaluated: prepared + one.evaluated, batches};
}

const operations = {
  generate,
  ask,
  tokenize: ({text}) => ({ids: model.tokenize(text, true)}),
  detokenize: ({ids}) => ({text: model.detokenize(ids, true)}),
};

console.log(JSON.stringify({ready: {
  version: `node-llama-cpp ${version}`,
  llama_cpp: llama.llamaCppRelease?.release,
  vocabulary: model.fileInfo.metadata.tokenizer.ggml.tokens.length,
  threads: context.currentThreads,
  load_s: seconds() - begin,
  flash: values.flash,
  mmap: values.mmap,
}}));

for await (const line of readline.createInterface({input: process.stdin})) {
  let answer;
  try {
    const request = JSON.parse(line);
    answer = await operations[request.op](request);
  } catch (error) {
    answer = {error: String(error?.message ?? error)};
  }
  console.log(JSON.stringify(answer));
}
await context.dispose();
await model.dispose();
await llama.dispose();
