/**
 * Makes an element. Everything that comes from outside (names, reasons, job output) goes in as text: there is no way here
 * to hand over markup.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

/** Touches the page only where something changed, so that screen readers and selections are left alone. */
export function setText(element, text) {
  const wanted = text ?? '';
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * Makes the children of `parent` be one for each item, in order. `make(item)` returns `{ element, update(item) }`, kept
 * under `key(item)` from one call to the next.
 */
export function keyed(parent, make, key) {
  let known = new Map();
  return (items) => {
    const next = new Map();
    let at = parent.firstElementChild;
    for (const item of items) {
      const name = key(item);
      const part = known.get(name) ?? make(item);
      next.set(name, part);
      part.update(item);
      if (part.element === at) at = at.nextElementSibling;
      else parent.insertBefore(part.element, at);
    }
    for (const [name, part] of known) if (!next.has(name)) part.element.remove();
    known = next;
  };
}

/** A function that has `draw` called at most once a frame, however often it is called itself. */
export function oncePerFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

let saying = null;

/** Tells screen readers; of several that come at once all are told. */
export function announce(text) {
  const place = document.getElementById('announce');
  if (saying === null) {
    saying = [];
    setTimeout(() => {
      place.textContent = saying.length > 4 ? `${saying.length} jobs changed.` : saying.join(' ');
      saying = null;
    }, 400);
  }
  saying.push(text);
}

/** Asks before something that cannot be undone. */
export function ask(title, text, yes, no = 'Keep it') {
  const dialog = document.getElementById('ask');
  setText(document.getElementById('ask-title'), title);
  setText(document.getElementById('ask-text'), text);
  const [keep, go] = dialog.querySelectorAll('button');
  setText(keep, no);
  setText(go, yes);
  go.hidden = yes === null;
  dialog.returnValue = 'no';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}
