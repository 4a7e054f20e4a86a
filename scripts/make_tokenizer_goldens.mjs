// SPDX-License-Identifier: Apache-2.0
//
// Writes tests/golden/tokenizer/<pre>.json: texts, and the pieces and tokens that Hugging Face's
// tokenizers makes of them with harbour's vocabulary and each of our pre-tokenizers.
//
//   npm install --prefix /tmp/goldens @huggingface/tokenizers@0.2.0
//   node scripts/make_tokenizer_goldens.mjs /tmp/goldens
//   node scripts/make_tokenizer_goldens.mjs /tmp/goldens --tokenizer-json OUT.json
//
// The second form only writes the tokenizer.json made from the GGUF file. The C++ tests read the
// vectors and need neither Node nor the package. tests/golden/tokenizer/README.md says what the
// vectors can and cannot show.

import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const MODEL = path.join(ROOT, 'models/harbour-2.8m-q8_0.gguf');
const CONTEXT = 'models/harbour-context.txt';
const OUT = path.join(ROOT, 'tests/golden/tokenizer');

// As published in tokenizer.json files of these families; llama.cpp runs the same.
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
const PRE_TOKENIZERS = {
  'qwen2': {patterns: [
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|` +
    `\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`]},
  'qwen35': {patterns: [
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|` +
    ` ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`]},
  'llama-bpe': {ignoreMerges: true, patterns: [
    `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|` +
    `\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`]},
  'gpt-2': {patterns: [GPT2]},
  'default': {patterns: ['[\\p{P}\\$\\+<=>\\^\\~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]']},
};

// --- GGUF: the keys only -----------------------------------------------------------------------

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  u32() { const v = this.bytes.readUInt32LE(this.at); this.at += 4; return v; }
  u64() { const v = Number(this.bytes.readBigUInt64LE(this.at)); this.at += 8; return v; }
  string() {
    const size = this.u64();
    this.at += size;
    return this.bytes.toString('utf8', this.at - size, this.at);
  }
  value(type) {
    const b = this.bytes;
    const fixed = (size, read) => { const v = read(this.at); this.at += size; return v; };
    switch (type) {
      case 0: return fixed(1, (i) => b.readUInt8(i));
      case 1: return fixed(1, (i) => b.readInt8(i));
      case 2: return fixed(2, (i) => b.readUInt16LE(i));
      case 3: return fixed(2, (i) => b.readInt16LE(i));
      case 4: return this.u32();
      case 5: return fixed(4, (i) => b.readInt32LE(i));
      case 6: return fixed(4, (i) => b.readFloatLE(i));
      case 7: return fixed(1, (i) => b.readUInt8(i) !== 0);
      case 8: return this.string();
      case 9: {
        const element = this.u32();
        return Array.from({length: this.u64()}, () => this.value(element));
      }
      case 10: return this.u64();
      case 11: return fixed(8, (i) => Number(b.readBigInt64LE(i)));
      case 12: return fixed(8, (i) => b.readDoubleLE(i));
      default: throw new Error(`value type ${type}`);
    }
  }
}

function readKeys(file) {
  const reader = new Reader(fs.readFileSync(file));
  if (reader.u32() !== 0x46554747) throw new Error(`${file}: not GGUF`);
  reader.u32();  // version
  reader.u64();  // tensors
  const keys = {};
  for (let count = reader.u64(); count > 0; --count) {
    const key = reader.string();
    keys[key] = reader.value(reader.u32());
  }
  return keys;
}

// --- tokenizer.json ----------------------------------------------------------------------------

const CONTROL = 3;
const USER_DEFINED = 4;

function makeTokenizerJson(keys, pre, parseSpecial) {
  const tokens = keys['tokenizer.ggml.tokens'];
  const types = keys['tokenizer.ggml.token_type'];
  const added = tokens
      .map((content, id) => ({id, content, type: types[id]}))
      .filter(({type}) => type === USER_DEFINED || (parseSpecial && type === CONTROL))
      .map(({id, content, type}) => ({
        id, content, single_word: false, lstrip: false, rstrip: false, normalized: false,
        special: type === CONTROL,
      }));
  const splits = pre.patterns.map((regex) => (
    {type: 'Split', pattern: {Regex: regex}, behavior: 'Isolated', invert: false}));
  return {
    version: '1.0',
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: {type: 'Sequence', pretokenizers: [
      ...splits, {type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false},
    ]},
    post_processor: null,
    decoder: {type: 'ByteLevel'},
    model: {
      type: 'BPE', ignore_merges: pre.ignoreMerges ?? false, unk_token: null,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: keys['tokenizer.ggml.merges'].map((merge) => {
        const space = merge.indexOf(' ', 1);
        return [merge.slice(0, space), merge.slice(space + 1)];
      }),
    },
  };
}

// --- texts -------------------------------------------------------------------------------------

const TEXTS = {
  empty: '',
  sentence: 'The code of the mill is 4821. Rosa counted 31 drums, and Ada left the red kite.',
  // llama.cpp's tokens of this one are in the model's goldens; harbour_log in the tests.
  harbour_log: 'Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. ' +
      'Rosa counted 31 drums.\nQ: Where is the red kite?\nA:',
  digit_runs: '1 12 123 1234 12345 123456 1234567 0x1F 3.14159 1,000,000 2026-11-29 12:34:56',
  digits_in_words: 'a1b22c333d4444 v1.2.3 B52s 4th 1st 100kg x86_64 H2O',
  other_digits: '٣٤٥ १२३४५ ４５６７ ½¼¾ ²³ Ⅷ ①②③④ 一二三',
  crlf: 'one\r\ntwo\r\n\r\nthree\n\nfour\rfive\r\r\nsix\r\n',
  newlines_and_spaces: 'a \n b\n  c  \n\n  d\t\n\te \r\n  f\n \n \n g',
  leading_spaces: '   three before',
  trailing_spaces: 'three after   ',
  only_spaces: '       ',
  only_newlines: '\n\n\n\n',
  mixed_blank_runs: ' \t \t\t  \n\t \u00a0 \u00a0\u00a0x\u2003\u2003y\u3000\u3000z \u2028\u2029 w',
  rare_spaces: 'a\u0085b \u0085\u0085 c\u180ed\ufeffe\u200bf\u1680g\u205fh\u000b\u000ci',
  byte_order_mark: '\ufeffstart \ufeff \ufeff middle',
  tabs: '\tone\t\ttwo\t \tthree\t',
  one_space_each: 'a b c d e f g h i j',
  contractions: "I'm you're he's she'll we've they'd don't it's John's",
  contractions_upper: "I'M YOU'RE HE'S SHE'LL WE'VE THEY'D DON'T IT'S JOHN'S",
  contractions_odd: "'s 'S ' s 'sad 'lll 'rE 'Ve '' ''s x'y'z o'clock 'd'd'd l\u2019homme \u2019s",
  long_s: "'\u017fun I'\u017fun he'\u017f '\u212a",
  punctuation: '... !!! ?!?! (a) [b] {c} <d> "e" \u201cf\u201d \u00abg\u00bb -- \u2014 \u2026 *** ~~~ ### $$$',
  punctuation_newline: 'end.\nnext!\r\n\r\nlast?)\n\n  more;\n',
  symbols: 'a+b=c a<b>c 5$ €10 £20 ^x ~y |z| `code` © ® ™ ° ± × ÷ → ∞ ∑',
  underscore: 'snake_case __init__ _x_ CamelCase kebab-case',
  code: 'int main(int argc, char** argv) {\n\tfor (int i = 0; i < 10; ++i) {\n\t\tprintf("%d\\n", i);\n\t}\n\treturn 0;\n}\n',
  python: 'def f(x: int) -> str:\n    """Doc."""\n    return f"{x!r}"  # note\n\n\nif __name__ == "__main__":\n    f(1)\n',
  json: '{"key": [1, 22, 333, 4444], "text": "a\\u00e9\\n", "n": null}',
  html: '<p class="x">Hello&nbsp;<b>world</b></p><!-- c -->',
  url: 'https://example.org/a/b-c_d?e=f&g=%20h#i mailto:a.b+c@example.org file:///tmp/x.txt',
  path: 'C:\\Users\\ada\\kite.txt /usr/local/bin ../a/./b',
  long_word: 'Donaudampfschifffahrtsgesellschaftskapitaen'.repeat(6),
  long_run: 'a'.repeat(300) + ' ' + 'he'.repeat(150),
  long_digits: '9'.repeat(100),
  long_punctuation: '='.repeat(80) + '\n' + '-'.repeat(33) + '\n',
  long_spaces: 'a' + ' '.repeat(100) + 'b' + '\n'.repeat(50) + ' '.repeat(51) + 'c',
  latin: 'Ünïcödé façade naïve Œuvre straße İstanbul ıI Ærø',
  combining: 'e\u0301a\u0308o\u0302 n\u0303 \u0301 x\u0301\u0302\u0303 \u0301\u0302',
  greek_cyrillic: 'Καλημέρα κόσμε. Привет, мир! Ёлка',
  cjk: '港の灯台は赤い。船が三隻入りました。漢字かなカナ混じり文、１２３番。',
  chinese: '河水在中午转向北方；九个人拉着绳子。',
  korean: '항구의 등대는 빨간색이다. 배가 들어왔다.',
  arabic: 'اللغة العربية جميلة، وفيها أرقام ١٢٣. مُحَمَّد',
  hebrew: 'שלום עולם! בְּרֵאשִׁית 123',
  devanagari: 'नमस्ते दुनिया। हिन्दी में संख्या १२३ क्षत्रिय',
  thai: 'สวัสดีชาวโลก ภาษาไทยไม่มีวรรค',
  bengali_tamil: 'বাংলা ভাষা தமிழ் மொழி',
  emoji: '😀 😀😀 👍🏽 🇳🇴🇫🇮 ❤️ ☕️',
  emoji_zwj: '👨‍👩‍👧‍👦 👩🏿‍🚀 🏳️‍🌈 x👩‍💻y',
  astral: '𝒜𝓑𝓒 𝟙𝟚𝟛 𠀀𠀁 𐍈𐌰 🜁',
  controls: 'a\u0000b\u0001c\u001b[0m\u007f\u0080\u009f',
  private_use: '\ue000\uf8ff \u{f0000} \ufffd \ufffe',
  mixed: 'Ada said: "The 3rd boat (港) left at 07:45\u00a0\u2014 isn\'t it?"\r\n\r\n\t- 12 кг, ½ l\n',
  whole_words: 'the harbour the mill the attic Uma Ewan Xenia Uma Uma',
};

const SPECIAL_TEXTS = {
  special_alone: '<|endoftext|>',
  special_between: 'one<|endoftext|>two <|pad|> three<|pad|><|endoftext|>\n',
  special_broken: '<|endoftext| ><|endoftext <|pad|',
};

// Fragments whose boundaries the pre-tokenizers treat differently, put together at random.
const FRAGMENTS = [
  ' ', '  ', '\n', '\r\n', '\t', '\u00a0', '\u3000', 'the', ' the', 'He', 'é', 'e\u0301', '中', 'अ',
  '1', '23', '456', '٣', '½', "'", "'s", "'LL", "'re", '.', '!?', '...', '"', '_', '$', '<', '😀',
  '\u200d', '\u0085', '\ufeff', 'Ж', '\u0301', '-', '(', ')\n', ' \n', '\n ', '   x',
];

function* randomTexts(count) {
  let state = 20261129n;
  const next = () => {  // 64-bit LCG of Knuth's MMIX; only the high bits are used
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    return Number(state >> 40n);
  };
  for (let i = 0; i < count; ++i) {
    const length = 1 + next() % 24;
    yield Array.from({length}, () => FRAGMENTS[next() % FRAGMENTS.length]).join('');
  }
}

// --- vectors -----------------------------------------------------------------------------------

function makeVectors(Tokenizer, keys, name) {
  const pre = PRE_TOKENIZERS[name];
  const plain = new Tokenizer(makeTokenizerJson(keys, pre, false), {});
  const special = new Tokenizer(makeTokenizerJson(keys, pre, true), {});
  const piecesOf = (text) => {
    let pieces = text === '' ? [] : [text];
    for (const split of plain.pre_tokenizer.tokenizers.slice(0, -1)) {
      pieces = pieces.flatMap((piece) => split.pre_tokenize_text(piece));
    }
    return pieces;
  };
  const tokensOf = (tokenizer, text) => tokenizer.encode(text, {add_special_tokens: false}).ids;
  const cases = [];
  const add = (label, text) => cases.push(
      {name: label, text, pieces: piecesOf(text), tokens: tokensOf(plain, text)});
  for (const [label, text] of Object.entries(TEXTS)) add(label, text);
  let index = 0;
  for (const text of randomTexts(60)) add(`random_${index++}`, text);
  for (const [label, text] of Object.entries(SPECIAL_TEXTS)) {
    add(label, text);
    cases.push({name: `${label}_parsed`, text, parse_special: true, tokens: tokensOf(special, text)});
  }
  const context = fs.readFileSync(path.join(ROOT, CONTEXT), 'utf8');
  cases.push({name: 'harbour_context', file: CONTEXT, tokens: tokensOf(plain, context)});
  return cases;
}

function main() {
  const [modules, option, target] = process.argv.slice(2);
  if (!modules) throw new Error('usage: make_tokenizer_goldens.mjs NPM_PREFIX [--tokenizer-json OUT]');
  const keys = readKeys(MODEL);
  if (option === '--tokenizer-json') {
    const json = makeTokenizerJson(keys, PRE_TOKENIZERS[keys['tokenizer.ggml.pre']], true);
    fs.writeFileSync(target, JSON.stringify(json, null, 1) + '\n');
    return;
  }
  const require = createRequire(path.resolve(modules, 'package.json'));
  const {Tokenizer} = require('@huggingface/tokenizers');
  fs.mkdirSync(OUT, {recursive: true});
  for (const name of Object.keys(PRE_TOKENIZERS)) {
    const lines = makeVectors(Tokenizer, keys, name).map((vector) => JSON.stringify(vector));
    const head = `{"pre":"${name}","made_with":"@huggingface/tokenizers 0.2.0","cases":[\n`;
    fs.writeFileSync(path.join(OUT, `${name}.json`), head + lines.join(',\n') + '\n]}\n');
  }
}

main();
