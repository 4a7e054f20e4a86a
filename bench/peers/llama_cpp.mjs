// SPDX-License-Identifier: Apache-2.0
//
// llama.cpp behind a pipe: one model and one context of SEQUENCES slots, driven by JSON lines on
// stdin, answered by JSON lines on stdout. llama.py starts it and says what is timed.
//
//   node llama_cpp.mjs PACKAGES MODEL [--threads 2] [--sequences 1] [--context 640] [--batch 512]
//                                     [--flash] [--mmap]
//
// PACKAGES is the folder whose node_modules holds node-llama-cpp. The first line says what runs:
//   {"ready": {"version", "llama_cpp", "vocabulary", "threads", "context", "load_s", "flash",
//              "mmap"}}
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

import readline from 'node:readline';
import {parseArgs} from 'node:util';

import {evaluatedBy, open, seconds} from './llama_context.mjs';

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
const [packages, model] = positionals;
const peer = await open({
  packages,
  model,
  threads: Number(values.threads),
  sequences: Number(values.sequences),
  context: Number(values.context),
  batch: Number(values.batch),
  flash: values.flash,
  mmap: values.mmap,
});
const {slots} = peer;

async function decode(slot, prompt, count, start) {
  const before = evaluatedBy(slot);
  const times = [];
  const ids = [];
  let evaluated = 0;
  await peer.together(async () => {
    for await (const token of slot.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
      times.push(seconds() - start);
      ids.push(token);
      if (ids.length === 1) evaluated = evaluatedBy(slot) - before;
      if (ids.length === count) break;
    }
  });
  return {times, ids, evaluated};
}

async function generate({prompts, tokens}) {
  if (prompts.length > slots.length) {
    throw new Error(`${prompts.length} prompts, ${slots.length} slots`);
  }
  for (const slot of slots) await slot.clearHistory();
  const batches = peer.batches();
  const start = seconds();
  const all = await Promise.all(
      prompts.map((prompt, i) => decode(slots[i], prompt, tokens, start)));
  return {
    times: all.map((one) => one.times),
    ids: all.map((one) => one.ids),
    evaluated: all.reduce((sum, one) => sum + one.evaluated, 0),
    batches: peer.batches() - batches,
  };
}

async function ask({shared, rest, tokens}) {
  const [slot] = slots;
  const batches = peer.batches();
  const start = seconds();
  const before = evaluatedBy(slot);
  await slot.adaptStateToTokens(shared, false);
  const missing = shared.slice(slot.nextTokenIndex);
  if (missing.length > 0) await slot.evaluateWithoutGeneratingNewTokens(missing);
  await slot.takeCheckpoint();
  const prepared = evaluatedBy(slot) - before;
  const one = await decode(slot, rest, tokens, start);
  return {times: [one.times], ids: [one.ids], evaluated: prepared + one.evaluated,
          batches: peer.batches() - batches};
}

const operations = {
  generate,
  ask,
  tokenize: ({text}) => ({ids: peer.model.tokenize(text, true)}),
  detokenize: ({ids}) => ({text: peer.model.detokenize(ids, true)}),
};

console.log(JSON.stringify({ready: peer.about}));

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
await peer.close();
