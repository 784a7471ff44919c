/** Told when the session is over: the page then asks for the token. */
let onRefused = () => {};
export const whenRefused = (listener) => {
  onRefused = listener;
};

async function call(method, path, body) {
  const response = await fetch(path, {
    method,
    credentials: 'same-origin',
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  });
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const error = new Error(answer?.error?.message ?? `The daemon answered ${response.status}.`);
  error.status = response.status;
  error.remedy = answer?.error?.remedy ?? '';
  throw error;
}

export const login = (token) => call('POST', '/api/login', { token });
export const logout = () => call('POST', '/api/logout');
export const session = () => call('GET', '/api/session');

/** `changes`: what to change of it, with `edit`. */
export async function act(job, action, changes) {
  try {
    return await call('POST', `/api/jobs/${encodeURIComponent(job)}/${action}`, changes);
  } catch (error) {
    if (error.status === 401) onRefused();
    throw error;
  }
}

/**
 * Follows a stream of events. A browser has six connections for a host: a page that nobody sees gives its own back, and
 * asks for everything anew when it is looked at. Returns how to stop.
 */
export function follow(path, handlers, onState) {
  let source = null;
  let stopped = false;
  let timer = null;
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    if (stopped || document.hidden) return;
    source = new EventSource(path);
    source.onopen = () => onState('on');
    source.onerror = () => {
      onState('wait');
      if (source?.readyState !== EventSource.CLOSED) return;
      // Refused, or the daemon is down: the browser has given up, so we go on by ourselves
      session().catch((error) => error.status === 401 && onRefused());
      timer = setTimeout(open, 2000);
    };
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  };
  const onVisible = () => (document.hidden ? close() : open());
  document.addEventListener('visibilitychange', onVisible);
  open();
  return () => {
    stopped = true;
    document.removeEventListener('visibilitychange', onVisible);
    close();
  };
}
