// SPDX-License-Identifier: Apache-2.0
//
// Writes tests/golden/parity/types/: a small llama of random blocks per pair of quantised types,
// and what llama.cpp makes of each.
//
//   npm install --prefix /tmp/goldens node-llama-cpp@3.21.1
//   node scripts/make_type_goldens.mjs /tmp/goldens
//   node scripts/make_type_goldens.mjs /tmp/goldens --check MODEL.gguf GOLDENS.json NAME
//
// The third form runs a model that has goldens and prints how far it is from them: with
// tests/golden/parity/h1-q4_k.gguf it shows that this script reads probabilities as they were read
// there (difference 0.000000, all 48 greedy tokens).
//
// The files share nothing with the product: blocks are random bytes around d and dmin, so every
// nibble, high bit and scale counts, and only the engine that runs them says what they mean. K types
// take the matrices whose rows are 256 long (embedding, which is the output head too, q, k, v, gate,
// up), the others attn_output and ffn_down, of rows of 32. Q4_K and Q8_0 have models of their own
// beside this folder. The same files and goldens come out every time.

import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const OUT = path.join(ROOT, 'tests/golden/parity/types');
const PROMPT = 32;
const GREEDY = 16;
const TOP = 8;

const WIDTH = 256;
const INNER = 32;  // of the one head, and of the feed-forward
const VOCABULARY = 32;

// Of a block: its bytes, where its f16 numbers are, and the standard deviation of its elements when
// d is 1 and every other byte is random. dmin (or m) makes the mean zero.
//   q uniform in 0..2^b - 1; scales uniform in all they can be.
const TYPES = {
  Q4_0: {id: 2, elements: 32, bytes: 18, d: 0, deviation: 4.6},
  Q4_1: {id: 3, elements: 32, bytes: 20, d: 0, min: 2, minOverD: -7.5, deviation: 4.6},
  Q5_0: {id: 6, elements: 32, bytes: 22, d: 0, deviation: 9.2},
  Q5_1: {id: 7, elements: 32, bytes: 24, d: 0, min: 2, minOverD: -15.5, deviation: 9.2},
  Q2_K: {id: 10, elements: 256, bytes: 84, d: 80, min: 82, minOverD: 1.5, deviation: 13},
  Q3_K: {id: 11, elements: 256, bytes: 110, d: 108, deviation: 43},
  Q5_K: {id: 13, elements: 256, bytes: 176, d: 0, min: 2, minOverD: 15.5, deviation: 510},
  Q6_K: {id: 14, elements: 256, bytes: 210, d: 208, deviation: 1370},
};
const PAIRS = [['Q2_K', 'Q4_0'], ['Q3_K', 'Q4_1'], ['Q5_K', 'Q5_1'], ['Q6_K', 'Q5_0']];

// SplitMix64.
class Random {
  constructor(seed) { this.state = BigInt(seed); }
  next() {
    const mask = (1n << 64n) - 1n;
    this.state = this.state + 0x9E3779B97F4A7C15n & mask;
    let z = this.state;
    z = (z ^ z >> 30n) * 0xBF58476D1CE4E5B9n & mask;
    z = (z ^ z >> 27n) * 0x94D049BB133111EBn & mask;
    return z ^ z >> 31n;
  }
  unit() { return Number(this.next() >> 11n) / 2 ** 53; }
  below(n) { return Math.floor(this.unit() * n); }
}

// --- GGUF ---------------------------------------------------------------------------------------

// The nearest f16. Below 2^-14 they are multiples of 2^-24; Q6_K has such scales here.
function half(x) {
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), -14);
  if (exponent > 15) throw new Error(`${x} is too large for an f16`);
  const steps = Math.round(Math.abs(x) * 2 ** (10 - exponent));  // to 2048, from 1024 if normal
  return (x < 0 ? 0x8000 : 0) | (exponent + 14 << 10) + steps;
}

const u32 = (x) => { const b = Buffer.alloc(4); b.writeUInt32LE(x); return b; };
const u64 = (x) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(x)); return b; };
const f32 = (x) => { const b = Buffer.alloc(4); b.writeFloatLE(x); return b; };
const text = (s) => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)]);
const VALUE = {
  u32: (x) => [u32(4), u32(x)],
  f32: (x) => [u32(6), f32(x)],
  bool: (x) => [u32(7), Buffer.from([x ? 1 : 0])],
  string: (x) => [u32(8), text(x)],
  strings: (x) => [u32(9), u32(8), u64(x.length), ...x.map(text)],
  i32s: (x) => [u32(9), u32(5), u64(x.length), ...x.map(u32)],
};

function keys(name) {
  const tokens = ['Ċ', 'Ġ', ...'abcdefghijklmnopqrstuvwxyz', 'ab', 'ba', 'cd', '<|end|>'];
  const types = tokens.map((token) => token === '<|end|>' ? 3 : 1);
  if (tokens.length !== VOCABULARY) throw new Error(`${tokens.length} tokens`);
  return [
    ['general.architecture', 'string', 'llama'],
    ['general.name', 'string', name],
    ['llama.block_count', 'u32', 1],
    ['llama.context_length', 'u32', 256],
    ['llama.embedding_length', 'u32', WIDTH],
    ['llama.feed_forward_length', 'u32', INNER],
    ['llama.vocab_size', 'u32', VOCABULARY],
    ['llama.attention.layer_norm_rms_epsilon', 'f32', 1e-5],
    ['llama.attention.head_count', 'u32', 1],
    ['llama.attention.head_count_kv', 'u32', 1],
    ['llama.attention.key_length', 'u32', INNER],
    ['llama.attention.value_length', 'u32', INNER],
    ['llama.rope.dimension_count', 'u32', INNER],
    ['llama.rope.freq_base', 'f32', 10000],
    ['tokenizer.ggml.model', 'string', 'gpt2'],
    ['tokenizer.ggml.pre', 'string', 'qwen2'],
    ['tokenizer.ggml.tokens', 'strings', tokens],
    ['tokenizer.ggml.token_type', 'i32s', types],
    ['tokenizer.ggml.merges', 'strings', ['a b', 'b a', 'c d']],
    ['tokenizer.ggml.bos_token_id', 'u32', VOCABULARY - 1],
    ['tokenizer.ggml.eos_token_id', 'u32', VOCABULARY - 1],
    ['tokenizer.ggml.add_bos_token', 'bool', false],
  ];
}

function matrix(random, name, typeName, k, n, deviation) {
  const type = TYPES[typeName];
  const blocks = k * n / type.elements;
  const data = Buffer.alloc(blocks * type.bytes);
  for (let i = 0; i < data.length; ++i) data[i] = random.below(256);
  for (let i = 0; i < blocks; ++i) {
    const block = data.subarray(i * type.bytes, (i + 1) * type.bytes);
    const d = deviation / type.deviation * (.8 + .4 * random.unit());
    block.writeUInt16LE(half(d), type.d);
    if (type.min !== undefined) block.writeUInt16LE(half(d * type.minOverD), type.min);
  }
  return {name, type: type.id, ne: [k, n], data};
}

function norm(random, name) {
  const values = Array.from({length: WIDTH}, () => f32(.9 + .2 * random.unit()));
  return {name, type: 0, ne: [WIDTH], data: Buffer.concat(values)};
}

// Products keep the size of what goes through them; the embedding is small, for it is the output
// head too and makes logits of deviation 2.
function tensors(random, wide, narrow) {
  const across = 1 / Math.sqrt(WIDTH);
  const back = 1 / Math.sqrt(INNER);
  return [
    matrix(random, 'token_embd.weight', wide, WIDTH, VOCABULARY, 2 * across),
    norm(random, 'output_norm.weight'),
    norm(random, 'blk.0.attn_norm.weight'),
    matrix(random, 'blk.0.attn_q.weight', wide, WIDTH, INNER, across),
    matrix(random, 'blk.0.attn_k.weight', wide, WIDTH, INNER, across),
    matrix(random, 'blk.0.attn_v.weight', wide, WIDTH, INNER, across),
    matrix(random, 'blk.0.attn_output.weight', narrow, INNER, WIDTH, back),
    norm(random, 'blk.0.ffn_norm.weight'),
    matrix(random, 'blk.0.ffn_gate.weight', wide, WIDTH, INNER, 1.5 * across),
    matrix(random, 'blk.0.ffn_up.weight', wide, WIDTH, INNER, 1.5 * across),
    matrix(random, 'blk.0.ffn_down.weight', narrow, INNER, WIDTH, back),
  ];
}

function gguf(name, all) {
  const align = (buffer) => Buffer.concat([buffer, Buffer.alloc(-buffer.length & 31)]);
  const pairs = keys(name);
  const head = [Buffer.from('GGUF'), u32(3), u64(all.length), u64(pairs.length)];
  for (const [key, kind, value] of pairs) head.push(text(key), ...VALUE[kind](value));
  let offset = 0;
  for (const {name: tensor, type, ne, data} of all) {
    head.push(text(tensor), u32(ne.length), ...ne.map(u64), u32(type), u64(offset));
    offset += align(data).length;
  }
  return Buffer.concat([align(Buffer.concat(head)), ...all.map(({data}) => align(data))]);
}

// --- The other engine ---------------------------------------------------------------------------

const packages = process.argv[2];
if (packages === undefined) {
  console.error('usage: node make_type_goldens.mjs PACKAGES [--check MODEL GOLDENS NAME]');
  process.exit(2);
}
const require = createRequire(path.resolve(packages, 'package.json'));
const {getLlama} = await import(pathToFileURL(require.resolve('node-llama-cpp')).href);
const llama = await getLlama({gpu: false, build: 'never', maxThreads: 1, logLevel: 'error',
                              progressLogs: false});

const WANTED = {generateNext: {probabilities: true,
                               options: {temperature: 1, topK: 0, topP: 1, minP: 0}}};

async function run(modelPath, prompt, greedyCount) {
  const model = await llama.loadModel({modelPath, useMmap: false});
  const context = await model.createContext({contextSize: 256, batchSize: 256, threads: 1,
                                             flashAttention: false});
  const sequence = context.getSequence();
  const next = async (tokens) => {
    const results = await sequence.controlledEvaluate(tokens.map((token) => [token, WANTED]));
    return results.map(({next: {probabilities}}) => [...probabilities].slice(0, TOP));
  };
  const rows = await next(prompt);
  const greedy = [];
  let last = rows.at(-1);
  while (greedy.length < greedyCount) {
    greedy.push(last[0][0]);
    [last] = await next([greedy.at(-1)]);
  }
  await context.dispose();
  await model.dispose();
  return {rows, greedy};
}

const rounded = (rows) => rows.map((row) => row.map(([id, p]) => [id, Number(p.toFixed(6))]));

if (process.argv[3] === '--check') {
  const [modelPath, goldensPath, name] = process.argv.slice(4);
  const golden = JSON.parse(fs.readFileSync(goldensPath, 'utf8'))[name];
  const found = await run(path.resolve(modelPath), golden.prompt_tokens, golden.greedy.length);
  let largest = 0;
  golden.rows.forEach((row, i) => {
    const ours = new Map(rounded(found.rows)[i]);
    for (const [id, p] of row) largest = Math.max(largest, Math.abs((ours.get(id) ?? 0) - p));
  });
  const equal = golden.greedy.findIndex((id, i) => id !== found.greedy[i]);
  console.log(`${name}: largest difference ${largest.toFixed(6)}, greedy equal: ` +
              `${equal < 0 ? golden.greedy.length : equal} of ${golden.greedy.length}`);
} else {
  fs.mkdirSync(OUT, {recursive: true});
  const goldens = {};
  for (const [index, [wide, narrow]] of PAIRS.entries()) {
    const name = `llama-${wide}-${narrow}`.toLowerCase();
    const random = new Random(1 + index);
    const file = path.join(OUT, `${name}.gguf`);
    fs.writeFileSync(file, gguf(name, tensors(random, wide, narrow)));
    const prompt = Array.from({length: PROMPT}, () => random.below(VOCABULARY - 1));
    const {rows, greedy} = await run(file, prompt, GREEDY);
    goldens[name] = {prompt_tokens: prompt, rows: rounded(rows), greedy};
  }
  const lines = Object.entries(goldens).map(([name, {prompt_tokens, rows, greedy}]) =>
      `"${name}": {"prompt_tokens": ${JSON.stringify(prompt_tokens)},\n"rows": [\n` +
      `${rows.map((row) => JSON.stringify(row)).join(',\n')}],\n` +
      `"greedy": ${JSON.stringify(greedy)}}`);
  fs.writeFileSync(path.join(OUT, 'goldens.json'), `{\n${lines.join(',\n')}\n}\n`);
}
await llama.dispose();
