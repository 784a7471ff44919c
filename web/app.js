import { follow, login, logout, session, whenRefused } from './api.js';
import { h, setText } from './dom.js';
import { jobPage } from './job.js';
import { overviewPage } from './overview.js';

const main = document.getElementById('main');
const link = document.getElementById('link');
const outage = document.getElementById('outage');
const leave = document.getElementById('leave');
const STATES = { on: 'live', wait: 'reconnecting…', off: 'not connected' };
let closePage = () => {};

function setLink(state) {
  link.dataset.state = state;
  setText(link, STATES[state]);
}

function setOutage({ up }) {
  outage.hidden = up;
  setText(outage, up ? '' : 'Redis does not answer. Jobs go on; what you see is how things stood before.');
}

/** Shows what the address names: all jobs, or one. */
function route() {
  closePage();
  main.replaceChildren();
  const job = /^#\/jobs\/(j-[a-z0-9]{4,32})$/.exec(location.hash)?.[1];
  const page = job === undefined ? overviewPage() : jobPage(job);
  main.append(...page.elements);
  document.title = job === undefined ? 'oomtune' : `${job} · oomtune`;
  const path = job === undefined ? '/api/stream' : `/api/stream?job=${job}`;
  const common = {
    hello: ({ host, version }) => setText(document.getElementById('where'), `${host} · ${version}`),
    redis: setOutage,
  };
  const handlers = { ...page.handlers, ...common };
  const { hello } = page.handlers;
  if (hello)
    handlers.hello = (data) => {
      common.hello(data);
      hello(data);
    };
  const stop = follow(path, handlers, setLink);
  closePage = () => {
    stop();
    page.close?.();
  };
}

function onHash() {
  if (location.hash === '#main') {
    main.focus();
    return;
  }
  if (/^#token=/.test(location.hash)) void enter();
  else {
    route();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function start() {
  leave.hidden = false;
  window.addEventListener('hashchange', onHash);
  route();
}

function askForToken(wrong) {
  closePage();
  closePage = () => {};
  window.removeEventListener('hashchange', onHash);
  leave.hidden = true;
  setLink('off');
  const message = h('p', { class: 'wrong', role: 'alert' }, wrong ?? '');
  const input = h('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
  });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await login(input.value.trim().replace(/^.*#token=/, ''));
      start();
    } catch (error) {
      setText(message, error.message);
      input.select();
    }
  };
  main.replaceChildren(
    h(
      'form',
      { class: 'sheet login', onsubmit: submit },
      h('h1', {}, 'Who are you?'),
      h(
        'p',
        { class: 'quiet' },
        'Run ',
        h('code', {}, 'oomtune dashboard'),
        ' on this machine and open the address that it prints, or put its token here.',
      ),
      h('label', {}, 'Token', input),
      message,
      h('div', { class: 'row end' }, h('button', { class: 'main' }, 'Open the dashboard')),
    ),
  );
  input.focus();
}

/** A token in the address is used once and taken out of it, so that it stays in no history. */
async function enter() {
  const token = /^#token=([^&]*)/.exec(location.hash)?.[1];
  if (token !== undefined) history.replaceState(null, '', '#/');
  try {
    if (token !== undefined) await login(token);
    else await session();
    start();
  } catch (error) {
    askForToken(token !== undefined || error.status !== 401 ? error.message : null);
  }
}

whenRefused(() => askForToken('The session is over.'));
leave.addEventListener('click', async () => {
  await logout().catch(() => {});
  askForToken(null);
});
void enter();
