/** CHANGELOG.md in the form of Keep a Changelog 1.1.0, as far as a release and its reader rely on it. */

/** Kinds of changes, in their order. */
export const KINDS = ['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security'];

/**
 * The versions of a changelog, the newest first: `[{ version, date, changes }]`, where `version` is `Unreleased` or a number,
 * `date` null or `YYYY-MM-DD`, and `changes` the entries under each kind. Throws a sentence where the form is broken.
 */
export function readChangelog(text) {
  const [head, ...parts] = text.split(/^## /m);
  if (!head.startsWith('# Changelog\n')) throw new Error('CHANGELOG.md does not begin with "# Changelog".');
  const versions = parts.map(readVersion);
  const [first, ...released] = versions;
  if (first?.version !== 'Unreleased') throw new Error('CHANGELOG.md does not begin with "## [Unreleased]".');
  const undated = released.find(({ version, date }) => !/^\d+\.\d+\.\d+/.test(version) || date === null);
  if (undated) throw new Error(`"## [${undated.version}]" is not of the form "## [1.2.3] - 2026-01-31".`);
  return versions;
}

function readVersion(part) {
  const title = part.slice(0, part.indexOf('\n'));
  const [, version, date = null] = /^\[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$/.exec(title) ?? [];
  if (version === undefined) throw new Error(`"## ${title}" is not of the form "## [1.2.3] - 2026-01-31".`);
  const changes = {};
  for (const section of part.split(/^### /m).slice(1)) {
    const kind = section.slice(0, section.indexOf('\n'));
    if (!KINDS.includes(kind)) throw new Error(`"### ${kind}" in ${version} is none of ${KINDS.join(', ')}.`);
    if (changes[kind]) throw new Error(`"### ${kind}" stands twice in ${version}.`);
    changes[kind] = entriesOf(section.slice(section.indexOf('\n')), `${kind} of ${version}`);
  }
  const order = Object.keys(changes);
  const sorted = KINDS.filter((kind) => changes[kind]);
  if (order.join() !== sorted.join()) throw new Error(`The kinds of ${version} stand as ${order}, not as ${sorted}.`);
  const all = Object.values(changes).flat();
  const twice = all.find((entry, at) => all.indexOf(entry) !== at);
  if (twice) throw new Error(`Told twice in ${version}: "${twice.slice(0, 80)}…"`);
  return { version, date, changes };
}

/** Bullets with their further lines; anything else but blank lines is not of the form. */
function entriesOf(section, where) {
  const entries = [];
  for (const line of section.split('\n')) {
    if (line.startsWith('- ')) entries.push(line.slice(2));
    else if (line.startsWith('  ') && entries.length > 0) entries.push(`${entries.pop()} ${line.trim()}`);
    else if (line.trim() !== '') throw new Error(`Neither an entry nor a part of one under ${where}: "${line}"`);
  }
  if (entries.length === 0) throw new Error(`There is nothing under ${where}.`);
  return entries;
}
