import { h, setText } from './dom.js';

let dialog = null;

function make() {
  const title = h('h2', { id: 'edit-title' });
  const priority = h('input', { type: 'number', name: 'priority', step: '1', min: '-1000000', max: '1000000' });
  const time = h('input', { name: 'time', autocomplete: 'off', spellcheck: 'false', placeholder: '4h, 1h30m or none' });
  const form = h(
    'form',
    { method: 'dialog' },
    title,
    h('label', {}, 'Priority: higher goes first', priority),
    h('label', {}, 'Time limit, from its start on', time),
    h('p', { class: 'small' }, 'What is left empty stays as it is.'),
    h(
      'div',
      { class: 'row end' },
      h('button', { type: 'submit', value: 'no', class: 'plain', formnovalidate: true }, 'Leave it'),
      h('button', { type: 'submit', value: 'yes', class: 'main' }, 'Change'),
    ),
  );
  const element = h('dialog', { 'aria-labelledby': 'edit-title', class: 'edit' }, form);
  document.body.append(element);
  return { element, title, form, priority, time };
}

/** What to change of jobs that have not started, as `oomtune edit` takes it; null: nothing. */
export function askForChanges(what) {
  dialog ??= make();
  const { element, title, form, priority, time } = dialog;
  form.reset();
  setText(title, `Edit ${what}`);
  element.returnValue = 'no';
  element.showModal();
  priority.focus();
  return new Promise((resolve) => {
    element.addEventListener(
      'close',
      () => {
        const changes = {
          ...(priority.value === '' ? {} : { priority: Number(priority.value) }),
          ...(time.value.trim() === '' ? {} : { time: time.value.trim() }),
        };
        resolve(element.returnValue === 'yes' && Object.keys(changes).length > 0 ? changes : null);
      },
      { once: true },
    );
  });
}
