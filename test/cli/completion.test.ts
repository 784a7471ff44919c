import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, PROGRAM } from './oomtune.js';

const run = promisify(execFile);
const oomtune = new Oomtune();
const folder = join(oomtune.home, 'completion');
let job = '';

/** What each shell offers for a line, asked of the shell itself. */
const ASK = {
  bash: (line: string) => {
    const words = line.split(' ').map((word) => `'${word}'`);
    return `source ${folder}/script; COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; _oomtune; printf '%s\\n' "\${COMPREPLY[@]}"`;
  },
  fish: (line: string) => `source ${folder}/script; complete -C '${line}'`,
  // zsh completes only in a terminal: it is given one, and asked to list
  zsh: (line: string) => `
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; source ${folder}/script; LISTMAX=1000; bindkey '^I' list-choices; print REA''DY"
    zpty -r -m shell seen '*READY*'
    zpty -w -n shell '${line}'$'\\t'
    deadline=$((SECONDS + 20))
    while ((SECONDS < deadline)); do
      if zpty -r -t shell part; then print -rn -- "$part"; quiet=0; else sleep 0.1; ((quiet += 1)); ((quiet > 20)) && break; fi
    done
    zpty -d shell`,
};

async function offered(shell: keyof typeof ASK, line: string): Promise<string> {
  const env = { ...oomtune.env, PATH: `${folder}:${oomtune.env.PATH}`, TERM: 'dumb' };
  const { stdout } = await run(shell, [...(shell === 'zsh' ? ['-f'] : []), '-c', ASK[shell](line)], {
    env,
    cwd: folder,
  });
  return stdout;
}

describe.each(['bash', 'zsh', 'fish'] as const)('completion in %s', (shell) => {
  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'oomtune'), `#!/bin/sh\nexec '${PROGRAM}' "$@"\n`);
    chmodSync(join(folder, 'oomtune'), 0o755);
    writeFileSync(join(folder, 'script'), (await oomtune.call(['completion', shell])).stdout);
    job ||= (await oomtune.call(['submit', '--name', 'sweep-lr-3', '--device', 'cpu', '--', 'true'])).stdout.trim();
  });

  it('offers verbs, and the verbs of verbs', async () => {
    expect(await offered(shell, 'oomtune su')).toContain('submit');
    expect(await offered(shell, 'oomtune daemon st')).toMatch(/status[\s\S]*stop|stop[\s\S]*status/);
  });

  it('offers options and the values that they take', async () => {
    expect(await offered(shell, 'oomtune run --accu')).toContain('accumulation');
    expect(await offered(shell, 'oomtune run --amp ')).toMatch(/bf16/);
  });

  it('offers the ids of jobs', async () => {
    expect(job).toMatch(/^j-/);
    expect(await offered(shell, 'oomtune logs j-')).toContain(job);
  });

  it('offers the names of jobs', async () => {
    expect(await offered(shell, 'oomtune logs swee')).toContain('sweep-lr-3');
    expect(await offered(shell, 'oomtune submit --after swee')).toContain('sweep-lr-3');
  });
});

afterAll(() => oomtune.close());
