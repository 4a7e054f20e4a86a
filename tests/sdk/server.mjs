// SPDX-License-Identifier: Apache-2.0
//
// A `tessera serve` of its own for a test file, on a free port, ended with it.

import {after} from 'node:test';

import {startTessera} from '../tessera_server.mjs';

// Resolves to {url, key} once the server answers. `args` are more flags.
export async function startServer(args = []) {
  const key = 'sdk-test-key';
  const {url, stop} =
      await startTessera(['--port', '0', '--budget', '64MiB', '--api-key', key, ...args]);
  after(stop);
  return {url, key};
}

export const LOG =
    'Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. ' +
    'Rosa counted 31 drums.';
export const PROMPT = `${LOG}\nQ: Where is the red kite?\nA:`;
export const MESSAGES = [
  {role: 'system', content: LOG},
  {role: 'user', content: 'Where is the red kite?'},
];
export const ANSWER = ' in the barn.';
