// SPDX-License-Identifier: Apache-2.0
//
// The server this page came from: JSON and streams, with the API key when one was given. The key is
// in this tab's sessionStorage, and in no address.

const kKey = 'tessera.key';
let key = sessionStorage.getItem(kKey) || '';

export function setKey(value) {
  key = value;
  if (value) sessionStorage.setItem(kKey, value);
  else sessionStorage.removeItem(kKey);
}
export const hasKey = () => key !== '';

// Of an answer that is no success; `status` 0: there was none.
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function open(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let reply;
  try {
    reply = await fetch(path, { cache: 'no-store', ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError(0, 'The server is not reachable.');
  }
  if (reply.ok) return reply;
  const body = await reply.json().catch(() => null);
  throw new ServerError(reply.status, body?.error?.message || `HTTP status ${reply.status}`);
}

export async function get(path) {
  const reply = await open(path, { signal: AbortSignal.timeout(10_000) });
  try {
    return await reply.json();
  } catch {
    throw new ServerError(0, 'The server is not reachable.');
  }
}

// Calls `onEvent` with each event of a streamed completion.
export async function stream(path, body, signal, onEvent) {
  const reply = await open(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    signal,
  });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new ServerError(0, 'The server went away in the middle of the answer.');
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith('data: ')) continue;  // a comment that keeps the connection open
      if (event === 'data: [DONE]') return;
      const json = JSON.parse(event.slice('data: '.length));
      if (json.error) throw new ServerError(reply.status, json.error.message);
      onEvent(json);
    }
  }
}
