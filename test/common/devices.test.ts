import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../scripts/setup/say.mjs';
import {
  DEVICE_CHOICE,
  isDeviceId,
  isHost,
  isNumbered,
  KIND_NAMES,
  kindNameOf,
  ordinalOf,
} from '../../src/contract/device-id.js';
import { KINDS } from '../../src/devices/index.js';

test('no module but a kind of device itself, and the contract, names one', () => {
  const src = join(ROOT, 'src');
  const literal = new RegExp(`(['"\`])(${KIND_NAMES.join('|')})(:[^'"\`]*)?\\1`);
  const naming = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') && !path.startsWith('devices') && path !== 'contract/device-id.ts')
    .filter((path) => !['contract/shell.ts', 'daemon/own-shell.ts'].includes(path)) // limits of a shell: cpu is time there
    .flatMap((path) =>
      readFileSync(join(src, path), 'utf8')
        .split('\n')
        .filter((line) => literal.test(line) && !/^\s*(\/\/|\/?\*)/.test(line))
        .map((line) => `${path}: ${line.trim()}`),
    );
  expect(naming).toEqual([]);
});

test('each kind has a folder of its name', () => {
  expect(Object.entries(KINDS).map(([name, kind]) => [name, kind.name])).toEqual(
    KIND_NAMES.map((name) => [name, name]),
  );
  const folders = readdirSync(join(ROOT, 'src', 'devices'), { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  expect(folders.map(({ name }) => name).sort()).toEqual([...KIND_NAMES].sort());
});

test('an id names a kind, and which of its devices', () => {
  expect(['cpu', 'cuda', 'cuda:3', 'nosuch:0', ''].map(kindNameOf)).toEqual([
    'cpu',
    'cuda',
    'cuda',
    undefined,
    undefined,
  ]);
  expect(['cpu', 'cuda', 'cuda:3', 'cuda:x'].map(isDeviceId)).toEqual([true, false, true, false]);
  expect([isHost('cpu'), isHost('cuda:0'), isHost(null), isNumbered('cuda'), ordinalOf('cuda:12')]).toEqual([
    true,
    false,
    false,
    false,
    12,
  ]);
  expect(['cpu', 'cuda', 'cuda:3', 'cpu:0', 'cuda:1000', 'gpu'].map((id) => DEVICE_CHOICE.test(id))).toEqual([
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});
