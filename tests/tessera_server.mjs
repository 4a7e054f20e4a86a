// SPDX-License-Identifier: Apache-2.0
//
// A `tessera serve` of its own for a test. Port 0 is any free one.

import { spawn } from 'node:child_process';

// Resolves to {url, port, stop} once the server answers; stop() resolves when it has ended.
export async function startTessera(args) {
  const child = spawn(process.env.TESSERA, ['serve', process.env.MODEL, ...args],
    { stdio: ['ignore', 'pipe', 'pipe'] });
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
  const stop = () => new Promise((resolve) => {
    child.on('exit', resolve);
    child.kill('SIGTERM');
  });
  return { url, port: new URL(url).port, stop };
}
