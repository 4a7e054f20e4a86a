// SPDX-License-Identifier: Apache-2.0
//
// Asks the server once a second, while somebody can see the page, and hands what it says to the
// parts that draw it.
//
//   connecting --> live <--> unreachable (or loading), the last figures greyed
//        \--> key wanted --> live

import { drawCheckpoints, redrawCheckpoints } from './checkpoints.js';
import { $ } from './draw.js';
import { drawKinds, drawMemory } from './memory.js';
import { drawPageMap, redrawPageMap } from './page_map.js';
import './prompt.js';
import { drawLoad, drawRequests } from './requests.js';
import { drawReuse } from './reuse.js';
import { get, hasKey, setKey } from './server.js';

const kPeriod = 1000;  // ms from one answer to the next question
const kEntries = 200;
let timer = 0;
let asking = false;
let named = false;

function show(state, text) {
  if ($('status').textContent === text) return;  // or it would be read out each second
  $('status').dataset.state = state;
  $('status').textContent = text;
}

async function nameModel(cache) {
  const [models, version] = await Promise.all([get('/v1/models'), get('/version')]);
  const model = models.data[0];
  $('model').textContent = `${model.id} · ${cache.organisation} · context ${model.max_model_len.toLocaleString('en')}`;
  $('footer').textContent = `Tessera ${version.version}`;
  document.title = `${model.id} – Tessera`;
  named = true;
}

async function update() {
  const [cache, pages, entries, requests] = await Promise.all([
    get('/cache'), get('/cache/pages'), get(`/cache/entries?limit=${kEntries}`), get('/requests')]);
  drawMemory(cache);
  drawKinds(pages.kinds, cache.budget_bytes);
  drawReuse(cache.reuse);
  drawLoad(cache);
  drawCheckpoints(entries);
  drawPageMap(pages);
  drawRequests(requests);
  if (!named) await nameModel(cache);
}

function failed(error) {
  const wantsKey = error.status === 401;
  $('key-form').hidden = !wantsKey;
  $('main').classList.toggle('stale', true);
  if (wantsKey) {
    $('key-error').textContent = hasKey() ? 'The server does not know this key.' : '';
    setKey('');
    show('wait', 'key wanted');
  } else if (error.status === 503) {
    show('wait', 'loading the model');
  } else {
    show('bad', error.status === 0 ? 'server not reachable' : `error ${error.status}`);
  }
  return !wantsKey;
}

async function poll() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  let again = true;
  try {
    await update();
    $('key-form').hidden = true;
    $('main').classList.remove('stale', 'waiting');
    show('live', 'live');
  } catch (error) {
    if (error.status === undefined && error.name !== 'TimeoutError') console.error(error);
    again = failed(error.status === undefined ? { status: 0 } : error);
  }
  asking = false;
  if (again && !document.hidden) timer = setTimeout(poll, kPeriod);
}

$('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  setKey($('key').value);
  $('key').value = '';
  poll();
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) clearTimeout(timer);
  else if ($('key-form').hidden) poll();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  redrawPageMap();
  redrawCheckpoints();
});
poll();
