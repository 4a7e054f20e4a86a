// SPDX-License-Identifier: Apache-2.0
//
// The page at / as a person meets it: what it says is what the server says, at any width, light and
// dark, with a mouse and without; and what it does when the server wants a key, goes or comes back.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import puppeteer from 'puppeteer-core';
import { complete, get, load, startServer } from './server.mjs';

const kSizes = [{ width: 1280, height: 800 }, { width: 390, height: 844 }, { width: 360, height: 740 }];
const shots = process.env.SHOTS;
let browser;
let server;

// A page that remembers what went wrong in it, as `page.problems`.
async function openPage(url, { width, height, theme = 'light' } = kSizes[0]) {
  const page = await browser.newPage();
  page.problems = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warn') page.problems.push(message.text());
  });
  page.on('pageerror', (error) => page.problems.push(error.message));
  await page.setViewport({ width, height, deviceScaleFactor: 1 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
  await page.goto(url);
  return page;
}
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const status = (page, wanted) => page.waitForFunction(
  (state) => document.querySelector('#status').textContent === state, { timeout: 15_000 }, wanted);
const figure = (n) => n.toLocaleString('en');

async function shoot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
}

before(async () => {
  server = await startServer();
  browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

describe('an idle server', () => {
  it('is shown with empty states and no problem', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    assert.match(await text(page, '#waterfall'), /No request yet/);
    assert.match(await text(page, '#timeline-note'), /none yet/);
    assert.equal(await text(page, '#hit'), '–');
    assert.deepEqual(page.problems, []);
    await shoot(page, 'idle');
    await page.close();
  });
});

describe('a server that has worked', () => {
  before(() => load(server));

  for (const size of kSizes) {
    for (const theme of ['light', 'dark']) {
      it(`says what the server says at ${size.width} pixels, ${theme}`, async () => {
        const page = await openPage(server.url, { ...size, theme });
        await status(page, 'live');
        await page.waitForSelector('#waterfall li.live, #waterfall li .bar i');
        const cache = await get(server, '/cache');
        const requests = await get(server, '/requests');
        const rows = await page.$$eval('#reasons tr', (all) => all.map((row) => [
          row.children[0].textContent.toLowerCase().replace(' ', '_'), row.children[2].textContent]));
        const tokens = { reused: cache.reuse.reused_tokens, ...cache.reuse.computed_tokens };
        assert.equal(rows.length, Object.keys(tokens).length);
        for (const [reason, shown] of rows) assert.equal(shown, figure(tokens[reason]), reason);
        assert.equal(await text(page, '#hit'),
          `${Math.round((100 * tokens.reused) / cache.reuse.prompt_tokens)} %`);
        assert.equal(await text(page, '#load-note'),
          `${cache.waiting} waiting, ${figure(cache.totals.requests_finished)} finished`);
        assert.equal((await page.$$('#waterfall li')).length, requests.live.length + requests.ended.length);
        assert.equal(await page.$eval('#waterfall li .id', (id) => id.textContent), `#${requests.ended[0].id}`);
        const canvas = await page.$eval('#pools canvas', (element) => element.getAttribute('aria-label'));
        const pages = cache.pools[0].pages;
        const taken = pages.total - pages.free - pages.reserved;
        assert.ok(canvas.includes(`${figure(taken)} of ${figure(pages.total)} pages taken`), canvas);
        const wider = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
        assert.equal(wider, 0, 'nothing sticks out sideways');
        assert.deepEqual(page.problems, []);
        await shoot(page, `${size.width}-${theme}`);
        await page.close();
      });
    }
  }

  it('moves nothing once it is there', async () => {
    const page = await openPage('about:blank');
    await page.evaluateOnNewDocument(() => {
      window.shift = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shift += entry.value)))
        .observe({ type: 'layout-shift', buffered: true });
    });
    await page.goto(server.url);
    await status(page, 'live');
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const shift = await page.evaluate(() => window.shift);
    assert.ok(shift < 0.1, `layout shift ${shift}`);
    await page.close();
  });

  it('tells whose a page is, to the mouse and to the keyboard', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    const [pages, ...run] = (await get(server, '/cache/pages')).pools[0].runs[0];
    assert.equal(run[1], 'block', 'attention lies lowest');
    const canvas = await page.$('#pools canvas');
    await canvas.scrollIntoView();
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + 2, box.y + 2);
    const owner = await text(page, '#owner');
    assert.ok(owner.startsWith(`Pages 0–${figure(pages - 1)}`), owner);
    assert.ok(owner.includes(`attention of tokens ${figure(run[4])}–${figure(run[5])}`), owner);
    await shoot(page, 'hover');
    await page.mouse.move(5, 5);
    assert.match(await text(page, '#owner'), /^Point at a page/);
    await canvas.focus();
    await page.keyboard.press('ArrowLeft');
    assert.match(await text(page, '#owner'), /SSM and convolution state after/, 'state lies highest');
    await (await page.$('#checkpoints')).focus();
    await page.keyboard.press('ArrowRight');
    assert.match(await text(page, '#checkpoint'), /^After [\d,]+ tokens of/);
    await page.close();
  });

  it('keeps to itself what lies under a salt', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    await (await page.$('#checkpoints')).focus();
    const seen = [];
    for (let i = 0; i < (await get(server, '/cache/entries')).entries.length; ++i) {
      await page.keyboard.press('ArrowRight');
      seen.push(await text(page, '#checkpoint'));
    }
    assert.ok(seen.some((line) => /of salted/.test(line)));
    assert.ok(seen.every((line) => !/tenant|And now/.test(line)));
    await page.close();
  });

  it('streams an answer and says how much of its prompt was known', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    // A prompt that goes on for ever.
    const endless = { prompt: 'Log of day 3.', max_tokens: 2000 };
    const wanted = await complete(server, endless);
    await page.$eval('#prompt', (element, value) => (element.value = value), endless.prompt);
    await page.$eval('#max-tokens', (element) => (element.value = '2000'));
    await page.evaluate(() => {
      window.seen = new Set();
      new MutationObserver(() => window.seen.add(document.querySelector('#answer').textContent))
        .observe(document.querySelector('#answer'), { childList: true, characterData: true, subtree: true });
    });
    const done = () => page.waitForFunction(
      () => /First token after/.test(document.querySelector('#answer-note').textContent));
    await page.click('#send');
    await done();
    assert.equal(await text(page, '#answer'), wanted.choices[0].text);
    assert.ok((await page.evaluate(() => window.seen.size)) > 3, 'it came in parts');

    await page.click('#example');
    const example = { prompt: await page.$eval('#prompt', (element) => element.value), max_tokens: 60 };
    await page.$eval('#max-tokens', (element) => (element.value = '60'));
    await complete(server, example);
    const { reuse } = (await complete(server, example)).choices[0];
    assert.ok(reuse.reused > 0);
    await page.click('#send');
    await done();
    const note = await text(page, '#answer-note');
    assert.ok(note.startsWith(reuse.from_row ? 'The whole prompt was known' : `${reuse.reused} of `), note);
    assert.deepEqual(page.problems, []);
    await shoot(page, 'answer');

    await page.$eval('#max-tokens', (element) => (element.value = '100000'));
    await page.$eval('#max-tokens', (element) => element.removeAttribute('max'));
    await page.click('#send');
    await page.waitForFunction(() => /max_tokens/.test(document.querySelector('#answer-note').textContent));
    assert.equal(await page.$eval('#send', (button) => button.disabled), false);
    await page.close();
  });

  it('shows what runs while it runs', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    const gone = new AbortController();  // together they take more than the budget
    const running = [1, 2, 3].map((day) => complete(server,
      { prompt: `Log of day ${day}.`, max_tokens: 6000, ignore_eos: true, temperature: 1 }, gone.signal).catch(() => {}));
    await page.waitForFunction(() => /^[123] running/.test(document.querySelector('#load').textContent));
    const numbers = [await text(page, '#load'), await text(page, '#load-note')].map(parseFloat);
    assert.equal(numbers[0] + numbers[1], 3);
    assert.equal((await page.$$('#waterfall li.live')).length, 3);
    const inUse = await page.$eval('#kinds tr', (row) => row.children[2].textContent);
    assert.match(inUse, /[KM]iB/);
    await shoot(page, 'busy');
    gone.abort();
    await Promise.all(running);
    assert.deepEqual(page.problems, []);
    await page.close();
  });

  it('asks at most once a second, and not while it is hidden', async () => {
    const page = await openPage(server.url);
    await status(page, 'live');
    let asked = 0;
    page.on('request', (request) => (asked += request.url().endsWith('/cache') ? 1 : 0));
    const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    await wait(3500);
    assert.ok(asked >= 1 && asked <= 4, `${asked} times in 3.5 s`);
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await wait(300);
    asked = 0;
    await wait(2500);
    assert.equal(asked, 0);
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: false, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await wait(800);
    assert.equal(asked, 1);
    await page.close();
  });
});

describe('a server with a key', () => {
  it('shows nothing until the tab has the key, and keeps it in the tab', async () => {
    const locked = await startServer(['--api-key', 'sesame']);
    const page = await openPage(locked.url);
    await status(page, 'key wanted');
    await shoot(page, 'key');
    await page.type('#key', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#key-error').textContent !== '');
    await page.type('#key', 'sesame');
    await page.keyboard.press('Enter');
    await status(page, 'live');
    assert.equal(await page.$eval('#key-form', (form) => form.hidden), true);
    await page.reload();
    await status(page, 'live');
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    assert.ok(page.problems.every((problem) => /401/.test(problem)), page.problems.join());
    await page.close();
    await locked.stop();
  });
});

describe('a server that goes', () => {
  it('is said to be gone, and found again', async () => {
    let other = await startServer();
    const { port } = other;
    const page = await openPage(other.url);
    await status(page, 'live');
    await other.stop();
    await status(page, 'server not reachable');
    assert.equal(await page.$eval('#main', (main) => main.classList.contains('stale')), true);
    await shoot(page, 'gone');
    other = await startServer(['--port', port]);
    await status(page, 'live');
    assert.equal(await page.$eval('#main', (main) => main.classList.contains('stale')), false);
    await page.close();
    await other.stop();
  });
});
