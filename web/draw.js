// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the page share: elements without markup in strings (text stays text), figures
// as people read them, bars, legends.

export const $ = (id) => document.getElementById(id);

export function element(tag, className = '', text = '') {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== '') made.textContent = text;
  return made;
}

const whole = new Intl.NumberFormat('en');
export const count = (n) => whole.format(n);
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1024;
    ++unit;
  }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ${units[unit]}`;
}

export function milliseconds(ms) {
  if (ms >= 60_000) return `${(ms / 60_000).toFixed(1)} min`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms >= 10_000 ? 1 : 2)} s`;
  return `${ms >= 10 ? Math.round(ms) : ms.toFixed(ms >= 1 ? 1 : 2)} ms`;
}

// Never 100 % or 0 % of what is not all or nothing.
export function percent(part, all) {
  if (all === 0) return '–';
  const share = (100 * part) / all;
  if (part > 0 && share < 1) return '<1 %';
  return `${part < all ? Math.min(99, Math.round(share)) : 100} %`;
}

// A figure whose unit is smaller than its number.
export function setFigure(target, text) {
  const [number, ...unit] = text.split(' ');
  target.replaceChildren(number);
  if (unit.length > 0) target.append(element('small', '', ` ${unit.join(' ')}`));
}

// Segments {part, kind, style, label} of a track that stands for `all`. Elements are kept, so that a
// bar grows instead of being drawn anew.
export function drawBar(bar, segments, all) {
  while (bar.children.length > segments.length) bar.lastElementChild.remove();
  while (bar.children.length < segments.length) bar.append(element('i'));
  segments.forEach(({ part, kind, style, label }, i) => {
    const segment = bar.children[i];
    segment.className = `${kind} ${style || ''}`;
    segment.style.width = all > 0 ? `${(100 * part) / all}%` : '0';
    segment.hidden = part === 0;
    segment.title = label;
  });
  const said = segments.filter((segment) => segment.part > 0).map((segment) => segment.label);
  bar.setAttribute('aria-label', said.join(', ') || 'Nothing');
}

export function swatch(kind, style = '') {
  const made = element('span', `swatch ${kind} ${style}`);
  made.setAttribute('aria-hidden', 'true');
  return made;
}

// Items {kind, style, name, value}.
export function drawLegend(list, items) {
  list.replaceChildren(...items.map(({ kind, style, name, value }) => {
    const item = element('li');
    item.append(swatch(kind, style), name);
    if (value !== undefined) item.append(' ', element('b', '', value));
    return item;
  }));
}

// A canvas as large as its box in pixels of the screen; the context draws in CSS pixels.
export function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
