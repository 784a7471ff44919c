import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { plan, project } from './project.js';
import { PLAIN } from './scripts.js';

const cwd = project({
  'train.py': PLAIN,
  'run.sh': '#!/bin/bash\npython train.py\n',
  'tool.py': '#!/usr/bin/env python3\nimport torch\n',
  '.venv/bin/python': '',
  'bin/torchrun': '#!/opt/env/bin/python3\nimport re\n',
  'bin/yolo': '#!/opt/env/bin/python3.11\nfrom ultralytics.cfg import entrypoint\n',
  'bin/conda': '',
  'envs/ml/bin/python': '',
});
const env = { PATH: `${join(cwd, 'bin')}:/usr/bin:/bin` };

async function programOf(command: string | string[]) {
  const { program, isPythonTorch } = await plan(command, { cwd, env });
  return { ...program, isPythonTorch };
}

describe('the program behind its wrappers', () => {
  test('is found with its interpreter and its own arguments', async () => {
    for (const [command, interpreter, args] of [
      ['python train.py --lr 1', { index: 0, path: 'python' }, 2],
      ['/usr/bin/python3.11 -u -W ignore -Xdev train.py', { index: 0, path: '/usr/bin/python3.11' }, 6],
      ['env -u X A=1 B=2 python3 train.py a', { index: 5, path: 'python3' }, 7],
      ['nohup nice -n 10 time -f %e python train.py', { index: 7, path: 'python' }, 9],
      ['timeout -k 5 60 python train.py', { index: 4, path: 'python' }, 6],
      ['taskset 0x3 numactl -N 0 python train.py', { index: 5, path: 'python' }, 7],
      ['stdbuf -oL python -m pdb -c continue train.py', { index: 2, path: 'python' }, 8],
      ['python -m coverage run --source . train.py x', { index: 0, path: 'python' }, 7],
    ] as const) {
      const program = await programOf(command);
      expect([command, program.kind, program.interpreter, program.argsStart, program.script?.stem]).toEqual([
        command,
        'python',
        interpreter,
        args,
        'train',
      ]);
    }
  });

  test('modules, code and launchers that take a module or an executable', async () => {
    expect(await programOf('python -mpkg.train x')).toMatchObject({ module: 'pkg.train', argsStart: 2, script: null });
    expect(await programOf(['python', '-c', 'import torch', 'x'])).toMatchObject({
      code: 'import torch',
      argsStart: 3,
      isPythonTorch: true,
    });
    expect(await programOf('torchrun --nproc_per_node 2 -m pkg.train --x 1')).toMatchObject({
      module: 'pkg.train',
      argsStart: 5,
    });
    expect(await programOf('accelerate launch --module pkg.train')).toMatchObject({ module: 'pkg.train' });
    expect(await programOf('torchrun --no-python ./run.sh a')).toMatchObject({ kind: 'shell', argsStart: 3 });
  });

  test("a launcher's and a console script's shebang tell the interpreter", async () => {
    expect((await programOf('torchrun train.py')).interpreter).toEqual({ index: null, path: '/opt/env/bin/python3' });
    expect(await programOf('yolo train batch=8')).toMatchObject({
      kind: 'python',
      name: 'yolo',
      script: null,
      interpreter: { index: null, path: '/opt/env/bin/python3.11' },
    });
    expect(await programOf('bin/yolo train')).toMatchObject({ kind: 'python', name: 'yolo' });
    expect(await programOf('./tool.py a')).toMatchObject({
      kind: 'python',
      argsStart: 1,
      interpreter: { path: 'python3' },
    });
  });

  test("behind uv, conda and their kin it is that environment's own", async () => {
    expect((await programOf('uv run --frozen train.py')).interpreter?.path).toBe(join(cwd, '.venv/bin/python'));
    expect(await programOf('uv run python -u train.py')).toMatchObject({
      interpreter: { index: 2, path: join(cwd, '.venv/bin/python') },
      script: { stem: 'train' },
    });
    expect((await programOf('conda run -n ml --no-capture-output python train.py')).interpreter?.path).toBe(
      join(cwd, 'envs/ml/bin/python'),
    );
    expect((await programOf('conda run -n gone python train.py')).interpreter).toBeNull();
  });

  test('shell scripts and other programs', async () => {
    expect(await programOf('bash -x run.sh a')).toMatchObject({ kind: 'shell', argsStart: 3, isPythonTorch: null });
    expect(await programOf(['bash', '-lc', 'python train.py'])).toMatchObject({
      kind: 'shell',
      code: 'python train.py',
    });
    expect(await programOf('./run.sh')).toMatchObject({ kind: 'shell', script: { stem: 'run' } });
    expect(await programOf('sleep 5')).toMatchObject({ kind: 'command', name: 'sleep', isPythonTorch: false });
    expect(await programOf('no-such-program')).toMatchObject({ kind: 'command', isPythonTorch: null });
  });

  test('variables in front of it are told, an empty command is not taken', async () => {
    expect((await programOf('env NGPU=4 python train.py')).env).toEqual({ NGPU: '4' });
    await expect(plan([])).rejects.toMatchObject({ code: 'OOMTUNE_USAGE' });
    const message = 'nb.ipynb is a notebook, which Python cannot run.';
    await expect(plan('nice python -u nb.ipynb')).rejects.toMatchObject({ code: 'OOMTUNE_USAGE', message });
    // Where another program runs it, that one makes a script of it.
    expect((await plan('jupyter nbconvert --execute nb.ipynb')).notes).toEqual([]);
  });
});
