/** The version and the repository's address, in every file that holds them. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Missing, ROOT } from '../setup/say.mjs';

/** How the version stands in a file; the native part takes package.json's when it is built. */
const PLACES = {
  'package.json': /^( {2}"version": ")([^"]+)(")/m,
  'package-lock.json': /^( {2}(?: {4})?"version": ")([^"]+)(")/gm,
  'python/pyproject.toml': /^(version = ")([^"]+)(")/m,
  'python/oomtune/__init__.py': /^(__version__ = ")([^"]+)(")/m,
};

/** package-lock.json says it twice: of itself, and of the package that it locks, which stands first. */
const matches = (text, pattern) => (pattern.global ? [...text.matchAll(pattern)].slice(0, 2) : [pattern.exec(text)]);

/** The one version of the checkout. Throws Missing where files disagree. */
export function version(root = ROOT) {
  const found = Object.entries(PLACES).flatMap(([file, pattern]) =>
    matches(readFileSync(join(root, file), 'utf8'), pattern).map((match) => [file, match?.[2] ?? 'none']),
  );
  const [[, first]] = found;
  if (found.some(([, other]) => other !== first)) {
    const told = found.map(([file, other]) => `${file} ${other}`).join(', ');
    throw new Missing(
      `The files do not agree on the version: ${told}.`,
      'Run: node scripts/release.mjs prepare VERSION',
    );
  }
  return first;
}

export function setVersion(next, root = ROOT) {
  for (const [file, pattern] of Object.entries(PLACES)) {
    const path = join(root, file);
    let left = 2;
    const text = readFileSync(path, 'utf8');
    const put = (all, before, _old, after) => (left-- > 0 ? `${before}${next}${after}` : all);
    writeFileSync(path, text.replace(pattern, put));
  }
}

/** `## [Unreleased]` becomes the release, with an empty place for what comes next above it. */
export function setChangelog(next, date, root = ROOT) {
  const path = join(root, 'CHANGELOG.md');
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace(/^## \[Unreleased\]$/m, `## [Unreleased]\n\n## [${next}] - ${date}`),
  );
}

/** Both indexes show it, and npm's provenance is refused where it is not the repository that builds the release. */
export function setRepository(url, root = ROOT) {
  const path = join(root, 'package.json');
  const { name, version, description, license, ...rest } = JSON.parse(readFileSync(path, 'utf8'));
  const repository = { type: 'git', url: `git+${url.replace(/(\.git)?\/?$/, '')}.git` };
  writeFileSync(path, `${JSON.stringify({ name, version, description, license, ...rest, repository }, null, 2)}\n`);
  const project = join(root, 'python', 'pyproject.toml');
  const text = readFileSync(project, 'utf8').replace(/^\[project\.urls\]\n(?:\w+ = .*\n)*\n/m, '');
  const urls = `[project.urls]\nRepository = "${url}"\nChangelog = "${url}/blob/main/CHANGELOG.md"\n\n`;
  writeFileSync(project, text.replace(/^\[tool\.setuptools\]$/m, `${urls}[tool.setuptools]`));
}
