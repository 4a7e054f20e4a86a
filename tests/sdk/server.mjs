// SPDX-License-Identifier: Apache-2.0
//
// A `tessera serve` of its own for a test file, on a free port, ended with it.

import {spawn} from 'node:child_process';
import {after} from 'node:test';

// Resolves to {url, key} once the server answers. `args` are more flags.
export async function startServer(args = []) {
  const key = 'sdk-test-key';
  const child = spawn(
      process.env.TESSERA,
      ['serve', process.env.MODEL, '--port', '0', '--budget', '64MiB', '--api-key', key, ...args],
      {stdio: ['ignore', 'pipe', 'pipe']});
  let log = '';
  const url = await new Promise((resolve, reject) => {
    const read = (chunk) => {
      log += chunk;
      const found = /on (http:\/\/[^\s]+)/.exec(log);
      if (found) resolve(found[1]);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
  });
  after(() => new Promise((resolve) => {
    child.removeAllListeners('exit');
    child.on('exit', resolve);
    child.kill('SIGTERM');
  }));
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
