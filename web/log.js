import { h, oncePerFrame, setText } from './dom.js';
import { clean } from './format.js';

const LINES = 2000;
const LINE_LENGTH = 4000;

/**
 * The output of a job as it comes. It is hostile: it goes in as text only, so many lines of so many characters, drawn at
 * most once a frame. A carriage return begins its line anew, as progress bars mean it.
 */
export function logPart() {
  const view = h('pre', {
    class: 'log',
    tabindex: '0',
    role: 'log',
    'aria-live': 'off',
    'aria-label': 'Output of the job',
  });
  const state = h('p', {});
  const element = h(
    'section',
    { class: 'sheet', 'aria-labelledby': 'log-title' },
    h('header', {}, h('h2', { id: 'log-title' }, 'Log'), state),
    view,
  );
  const rest = document.createTextNode('');
  view.append(rest);
  let blocks = [];
  let count = 0;
  let fresh = [];
  let line = '';
  let launch = 0;
  const later = oncePerFrame(draw);

  const push = (text, mark = false) => {
    fresh.push({ text, mark });
    if (fresh.length > LINES) fresh.shift();
  };

  function draw() {
    const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 40;
    let plain = [];
    const flush = () => {
      if (plain.length > 0) add(h('span', {}, `${plain.join('\n')}\n`), plain.length);
      plain = [];
    };
    for (const { text, mark } of fresh) {
      if (!mark) {
        plain.push(text);
        if (plain.length === 200) flush();
        continue;
      }
      flush();
      add(h('span', { class: 'mark' }, `${text}\n`), 1);
    }
    flush();
    fresh = [];
    while (count > LINES && blocks.length > 1) {
      const [first] = blocks.splice(0, 1);
      count -= first.lines;
      first.node.remove();
    }
    rest.data = shorten(line);
    if (atEnd) view.scrollTop = view.scrollHeight;
  }

  function add(node, lines) {
    view.insertBefore(node, rest);
    blocks.push({ node, lines });
    count += lines;
  }

  return {
    element,
    reset() {
      for (const { node } of blocks) node.remove();
      blocks = [];
      fresh = [];
      count = 0;
      line = '';
      launch = 0;
      rest.data = '';
      setText(state, 'nothing yet');
    },
    add({ launch: from, text, skipped }) {
      if (from !== launch) {
        if (line !== '') push(shorten(line));
        line = '';
        push(`— launch ${from} —`, true);
        launch = from;
      }
      if (skipped > 0) push(`— ${skipped} bytes are left out here; the whole log stands on the job’s host —`, true);
      const parts = (line + text).split('\n');
      line = remember(parts.pop());
      for (const part of parts) push(shorten(part));
      setText(state, `launch ${from}; the last ${LINES} lines`);
      later();
    },
  };
}

/** A line that has not ended, as it came: a sequence may be cut in two, and what follows may overwrite it. */
function remember(raw) {
  const from = raw.lastIndexOf('\r', raw.length - 2) + 1;
  return raw.slice(from, from + 4 * LINE_LENGTH);
}

/** What is left on a line after its carriage returns. */
function shorten(text) {
  const trimmed = text.endsWith('\r') ? text.slice(0, -1) : text;
  const last = clean(trimmed.slice(trimmed.lastIndexOf('\r') + 1));
  return last.length > LINE_LENGTH ? `${last.slice(0, LINE_LENGTH)}…` : last;
}
