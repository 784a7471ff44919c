import { act } from './api.js';
import { announce, ask, h } from './dom.js';
import { askForChanges } from './edit.js';

export const WORDS = { cancel: 'Cancel', hold: 'Hold', release: 'Release', retry: 'Retry', edit: 'Edit' };

/** As they stand beside one another: what cannot be undone comes last. */
export const ORDER = ['hold', 'release', 'edit', 'retry', 'cancel'];

/** How many of them are steered at a time. */
const AT_ONCE = 6;

/** The buttons that steer a job; `update` is told which of them there are. */
export function actionButtons(job, size = '') {
  const element = h('div', { class: 'row actions', role: 'group', 'aria-label': `Steer ${job}` });
  const made = new Map();
  let shown = '';
  return {
    element,
    update(actions) {
      const names = ORDER.filter((name) => actions.includes(name));
      if (names.join() === shown) return;
      shown = names.join();
      for (const name of names) if (!made.has(name)) made.set(name, makeButton(job, name, size));
      const held = document.activeElement;
      const had = element.contains(held);
      element.replaceChildren(...names.map((name) => made.get(name)));
      if (had) element.querySelector('button')?.focus();
    },
  };
}

function makeButton(job, name, size) {
  const button = h(
    'button',
    { type: 'button', class: `${size} ${name === 'cancel' ? 'danger' : ''}`.trim() },
    WORDS[name],
  );
  button.setAttribute('aria-label', `${WORDS[name]} ${job}`);
  button.addEventListener('click', async () => {
    button.disabled = true;
    await steer(name, [job]).finally(() => {
      button.disabled = false;
    });
  });
  return button;
}

/** Asks what has to be asked, does it to each of the jobs, and tells of those that it could not be done to. */
export async function steer(name, jobs) {
  const few = jobs.length === 1 ? jobs[0] : `${jobs.length} jobs`;
  if (name === 'cancel') {
    const sure = await ask(
      `Cancel ${few}?`,
      jobs.length === 1
        ? 'Its processes are ended, and it does not run again unless it is retried.'
        : 'Their processes are ended, and none of them runs again unless it is retried.',
      jobs.length === 1 ? 'Cancel the job' : `Cancel ${jobs.length} jobs`,
      jobs.length === 1 ? 'Keep it' : 'Keep them',
    );
    if (!sure) return;
  }
  const changes = name === 'edit' ? await askForChanges(few) : undefined;
  if (changes === null) return;
  const failures = [];
  let state = null;
  const rest = [...jobs];
  const work = async () => {
    for (let job = rest.shift(); job !== undefined; job = rest.shift()) {
      try {
        ({ state } = await act(job, name, changes));
      } catch (error) {
        failures.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, jobs.length) }, work));
  const done = jobs.length - failures.length;
  if (done > 0) announce(`${WORDS[name]}: ${jobs.length === 1 ? `${jobs[0]} is ${state}` : `${done} jobs`}.`);
  if (failures.length === 0) return;
  const [{ message, remedy }] = failures;
  announce(message);
  await ask(
    jobs.length === 1 ? 'That did not work' : `That did not work for ${failures.length} of ${jobs.length}`,
    `${message} ${remedy ?? ''}${failures.length > 1 ? ` And ${failures.length - 1} more.` : ''}`,
    null,
    'Close',
  );
}
