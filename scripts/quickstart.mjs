#!/usr/bin/env node
/** Set-up, then the main job as a newcomer would do it by hand: search, recommendation, reading it back from Redis. */
import { spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT, say } from './setup/say.mjs';
import { which } from './setup/system.mjs';
import { setup, withErrors } from './setup.mjs';

const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');

function finish(child) {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve(code ?? (signal === 'SIGINT' ? 130 : 1)));
  });
}

const oomtune = (args) =>
  spawnSync(process.execPath, [OOMTUNE, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 2] });

/** A URL of ours as redis-cli wants it. */
const redisCli = (url) => (url.startsWith('unix://') ? ['-s', url.slice('unix://'.length)] : ['-u', url]);

await withErrors(async () => {
  const python = setup();
  process.on('SIGINT', () => {}); // the search gets it too, and cleans up
  const search = ['find-batch', '--name', 'quickstart', '--device', 'cpu', '--budget', '300MiB'];
  const command = [python.path, join('examples', 'mlp.py')];
  say(`\n$ oomtune ${[...search, '--', ...command].join(' ')}\n`);
  const child = spawn(process.execPath, [OOMTUNE, ...search, '--', ...command], { cwd: ROOT, stdio: 'inherit' });
  process.exitCode = await finish(child);
  if (process.exitCode !== 0) return;

  const url = oomtune(['redis', 'url']).stdout.trim();
  const [found] = JSON.parse(oomtune(['recommend', 'quickstart', '--json']).stdout).recommendations;
  const cli = [
    which('redis-cli'),
    ...redisCli(url),
    'HGETALL',
    `{${process.env.OOMTUNE_PREFIX || 'oomtune'}}:config:${found.key}`,
  ];
  say(
    `\nThe same recommendation, read by a plain Redis client:\n\n$ ${cli.map((word) => (word.includes('{') ? `'${word}'` : word)).join(' ')}\n`,
  );
  const read = spawnSync(cli[0], cli.slice(1), { encoding: 'utf8', stdio: ['ignore', 'pipe', 2] });
  if (read.status !== 0 || read.stdout.trim() === '') {
    say('oomtune: the recommendation could not be read back.');
    process.exitCode = 1;
    return;
  }
  const lines = read.stdout.trimEnd().split('\n');
  for (let at = 0; at + 1 < lines.length; at += 2) {
    const value = lines[at + 1];
    process.stdout.write(`  ${lines[at].padEnd(22)} ${value.length > 60 ? `${value.slice(0, 59)}…` : value}\n`);
  }
  say(
    `\nNext, on a script of your own:\n\n  bin/oomtune.js find-batch --budget 80% -- ${python.path} your-script.py\n`,
  );
});
