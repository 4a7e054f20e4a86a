// SPDX-License-Identifier: Apache-2.0
//
// A `tessera serve` of its own for a test, on a port of its own, and a load for it.

import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { startTessera } from '../tessera_server.mjs';

export async function startServer(args = []) {
  return startTessera(['--budget', '12MiB', ...(args.includes('--port') ? [] : ['--port', '0']), ...args]);
}

export async function get(server, path) {
  return (await fetch(server.url + path)).json();
}

export async function complete(server, body, signal) {
  const reply = await fetch(`${server.url}/v1/completions`, {
    method: 'POST', body: JSON.stringify({ temperature: 0, max_tokens: 16, ...body }), signal,
  });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

const models = dirname(process.env.MODEL);
const context = readFileSync(join(models, 'harbour-context.txt'), 'utf8');
const questions = JSON.parse(readFileSync(join(models, 'harbour-questions.json'), 'utf8'));

// Questions over one text, some other prompts, one of a tenant, one that wants no reuse, and one
// whose client goes away.
export async function load(server) {
  for (const { question } of questions) {
    await complete(server, { prompt: `${context}Q: ${question}\nA:`, stop: '\n' });
  }
  for (let day = 1; day <= 12; ++day) {
    const log = `Log of day ${day}. Ada left the red kite in the barn. Rosa counted ${30 + day} drums.`;
    await Promise.all([complete(server, { prompt: `${log}\nQ: Where is the red kite?\nA:` }),
      complete(server, { prompt: `${log}\nQ: How many drums?\nA:`, max_tokens: 40 })]);
  }
  await complete(server, { prompt: `${context}Q: And now?\nA:`, cache_salt: 'tenant' });
  await complete(server, { prompt: `${context}Q: Once more?\nA:`, cache_prompt: false });
  const gone = new AbortController();
  setTimeout(() => gone.abort(), 150);
  await complete(server, { prompt: 'Log of', max_tokens: 1500, ignore_eos: true }, gone.signal).catch(() => {});
}
