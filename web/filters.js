/** What the list of jobs shows, as the address has it: a reload, a link and the way back show the same. */
const DEFAULTS = { show: 'open', find: '', owner: '', sort: '' };
const LONGEST = 200;

let latest = '#/';

/** `#/?show=ended&sort=-for` */
export function readFilters(hash = location.hash) {
  const given = new URLSearchParams(/^#\/\?(.*)$/.exec(hash)?.[1] ?? '');
  latest = hash.startsWith('#/jobs/') ? latest : hash || '#/';
  return Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, value]) => [name, (given.get(name) ?? value).slice(0, LONGEST)]),
  );
}

/** Whether the address itself says which jobs to show. */
export const choosesJobs = () => /^#\/\?(.*&)?show=/.test(location.hash);

export function writeFilters(filters) {
  const words = new URLSearchParams(Object.entries(filters).filter(([name, value]) => value !== DEFAULTS[name]));
  latest = words.size === 0 ? '#/' : `#/?${words}`;
  history.replaceState(null, '', latest);
}

/** The list as it was last looked at. */
export const listAddress = () => latest;
