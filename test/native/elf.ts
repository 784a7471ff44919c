import { execFileSync } from 'node:child_process';

const readelf = (option: string, file: string) => execFileSync('readelf', ['-W', option, file], { encoding: 'utf8' });

/**
 * The newest version of each library's symbols that a file asks for, by the number that counts: {GLIBC: 17} for GLIBC_2.17,
 * {GLIBCXX: 22} for GLIBCXX_3.4.22. For any architecture; empty for a static file.
 */
export function newestVersions(file: string): Record<string, number> {
  const newest: Record<string, number> = {};
  for (const [, name = '', version = ''] of readelf('-V', file).matchAll(/Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)/g)) {
    const parts = version.split('.').map(Number);
    newest[name] = Math.max(newest[name] ?? 0, (name === 'GLIBC' ? parts[1] : parts[2]) ?? 0);
  }
  return newest;
}

/** The libraries that the loader has to bring along. */
export function neededLibraries(file: string): string[] {
  return [...readelf('-d', file).matchAll(/NEEDED.*\[(.*)\]/g)].map((match) => match[1] as string).sort();
}
