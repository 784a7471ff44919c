/** The search of a page. The index is loaded when the field is first used: most readers follow links. */
(() => {
  const { root } = document.currentScript.dataset;
  const form = document.querySelector('form[role=search]');
  const field = document.getElementById('search');
  const found = document.getElementById('found');
  const MOST = 12;
  let index = null;
  form.hidden = false;

  window.oomtuneIndex = (data, options) => {
    index = window.MiniSearch.loadJS(data, options);
    show();
  };

  const load = () => {
    const script = document.createElement('script');
    script.src = `${root}assets/search-index.js`;
    document.head.append(script);
  };

  const element = (name, text, attributes = {}) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.textContent = text;
    return made;
  };

  const entry = ({ title, page, place, start }) => {
    const item = document.createElement('li');
    item.append(element('a', title, { href: root + place }));
    if (page !== title) item.append(element('span', ` in ${page}`));
    if (start !== '') item.append(element('p', `${start}…`));
    return item;
  };

  function show() {
    const words = field.value.trim();
    found.hidden = words === '';
    if (words === '' || index === null) return;
    const options = {
      prefix: (word) => word.length > 2,
      fuzzy: 0.15,
      boost: { title: 4, page: 2 },
      combineWith: 'AND',
    };
    let hits = index.search(words, options);
    if (hits.length === 0) hits = index.search(words, { ...options, combineWith: 'OR' });
    const list = document.createElement('ol');
    list.append(...hits.slice(0, MOST).map(entry));
    const more = hits.length > MOST ? `${MOST} of ${hits.length} sections` : `${hits.length} sections`;
    found.replaceChildren(
      element('p', hits.length === 0 ? `Nothing has “${words}”.` : hits.length === 1 ? '1 section' : more),
      list,
    );
  }

  field.addEventListener('focus', load, { once: true });
  field.addEventListener('input', show);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    found.querySelector('a')?.click();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && document.activeElement !== field && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      field.focus();
    } else if (event.key === 'Escape' && !found.hidden) {
      field.value = '';
      show();
      field.focus();
    }
  });
  found.addEventListener('click', (event) => {
    if (event.target.closest('a')) found.hidden = true;
  });
})();
