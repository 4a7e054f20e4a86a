// SPDX-License-Identifier: Apache-2.0
//
// A llama.cpp context of several sequences (slots) through node-llama-cpp, as all measurements of
// it here use it: on the CPU, with llama.cpp's own choice of backend, and with batches that hold
// every slot that has something to compute.
//
//   const peer = await open({packages, model, threads, sequences, context, batch, flash, mmap,
//                            checkpoints});
//   await peer.together(() => slot.evaluate(...))    while it runs, a batch waits for this slot
//   await peer.close();
//
// `packages` is the folder whose node_modules holds node-llama-cpp; `context` is one slot's, and so
// are `checkpoints` (node-llama-cpp's own choice when absent).

import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

export const seconds = () => Number(process.hrtime.bigint()) / 1e9;

// How often a batch that lacks a slot is put off.
const ASKED_MAX = 100;

// What llama_decode gets: tokens that continue a sequence first, as they hold up its reader, then
// prompts, first come first served.
//
// node-llama-cpp asks for the next batch a few turns of the microtask queue before the sequence it
// served last has handed in its next token, and so would leave one of N behind in every batch. An
// empty answer makes it ask again after some turns; all of them together are what llama.cpp can do.
function batching(state) {
  let asked = 0;
  return ({items, size}) => {
    if (items.length < state.active && ++asked <= ASKED_MAX) return [];
    asked = 0;
    ++state.batches;
    let left = size;
    const continued = items.filter((item) => item.tokens.length === 1);
    const prompts = items.filter((item) => item.tokens.length !== 1);
    return [...continued, ...prompts].map((item) => {
      const processAmount = Math.min(item.tokens.length, left);
      left -= processAmount;
      return {item, processAmount};
    }).filter(({processAmount}) => processAmount > 0);
  };
}

export async function open({packages, model: modelPath, threads, sequences, context: contextSize,
                            batch, flash, mmap, checkpoints}) {
  const begin = seconds();
  const require = createRequire(path.resolve(packages, 'package.json'));
  const {getLlama} = await import(pathToFileURL(require.resolve('node-llama-cpp')).href);
  // package.json is not among the package's exports.
  const {version} = JSON.parse(fs.readFileSync(
      path.resolve(packages, 'node_modules/node-llama-cpp/package.json'), 'utf8'));
  const llama = await getLlama({gpu: false, build: 'never', maxThreads: threads,
                                logLevel: 'error', progressLogs: false});
  const model = await llama.loadModel({modelPath: path.resolve(modelPath), useMmap: mmap});
  const state = {batches: 0, active: 0};
  const context = await model.createContext({
    contextSize,
    batchSize: batch,
    sequences,
    threads,
    flashAttention: flash,
    batching: {itemPrioritizationStrategy: batching(state)},
  });
  return {
    model,
    slots: Array.from({length: sequences}, () => context.getSequence({checkpoints})),
    about: {
      version: `node-llama-cpp ${version}`,
      llama_cpp: llama.llamaCppRelease?.release,
      vocabulary: model.fileInfo.metadata.tokenizer.ggml.tokens.length,
      threads: context.currentThreads,
      context: context.contextSize,
      load_s: seconds() - begin,
      flash,
      mmap,
    },
    batches: () => state.batches,
    async together(run) {
      ++state.active;
      try {
        return await run();
      } finally {
        --state.active;
      }
    },
    async close() {
      await context.dispose();
      await model.dispose();
      await llama.dispose();
    },
  };
}

// Tokens that went through the model so far. The last one of a prompt counts as output there.
export const evaluatedBy = (slot) =>
  slot.tokenMeter.usedInputTokens + slot.tokenMeter.usedOutputTokens;
