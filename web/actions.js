import { act } from './api.js';
import { announce, ask, h } from './dom.js';

const WORDS = { cancel: 'Cancel', hold: 'Hold', release: 'Release', retry: 'Retry' };

/** The buttons that steer a job; `update` is told which of them there are. */
export function actionButtons(job, size = '') {
  const element = h('div', { class: 'row actions', role: 'group', 'aria-label': `Steer ${job}` });
  const made = new Map();
  let shown = '';
  return {
    element,
    update(actions) {
      if (actions.join() === shown) return;
      shown = actions.join();
      for (const name of actions) if (!made.has(name)) made.set(name, makeButton(job, name, size));
      const held = document.activeElement;
      const had = element.contains(held);
      element.replaceChildren(...actions.map((name) => made.get(name)));
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
    if (name === 'cancel') {
      const sure = await ask(
        `Cancel ${job}?`,
        'Its processes are ended, and it does not run again unless it is retried.',
        'Cancel the job',
      );
      if (!sure) return;
    }
    button.disabled = true;
    try {
      const { state } = await act(job, name);
      announce(`${WORDS[name]}: ${job} is ${state}.`);
    } catch (error) {
      announce(error.message);
      await ask('That did not work', `${error.message} ${error.remedy ?? ''}`, null, 'Close');
    } finally {
      button.disabled = false;
    }
  });
  return button;
}
