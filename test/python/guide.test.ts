import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';

const run = promisify(execFile);
const page = readFileSync(join(ROOT, 'docs', 'guides', 'python.md'), 'utf8');
const blocks = (language: string) =>
  [...page.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, 'gm'))].map(([, text]) => text as string);

/** What the page takes for given. */
const GIVEN = `
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, x):
        return self.layer(x)

data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loss_of = nn.functional.cross_entropy
`;

describe('the page on Python', () => {
  const oomtune = new Oomtune();
  afterAll(() => oomtune.close());

  it('works as it is written, from its first block to its last', async () => {
    const text = blocks('python').join('\n').replace('budget="24GiB"', 'device="cpu", budget="300MiB", max_batch=4');
    const file = join(oomtune.home, 'page.py');
    writeFileSync(file, `${GIVEN}\n${text}\nmodel(torch.randn(8, 8)).sum().backward()\nprint(config.micro_batch)\n`);
    const env = { ...oomtune.env, PYTHONPATH: join(ROOT, 'python') };
    const { stdout } = await run(PYTHON, [file], { env, cwd: oomtune.home });
    expect(stdout).toMatch(/^[1-4] 4 off False\n[1-4]\n$/);
  });

  it("has the other libraries' blocks call what is there", async () => {
    const others = blocks('py');
    expect(others).toHaveLength(3);
    for (const text of others) {
      const [, name, what] = /^from (oomtune\.\S+) import (\w+)$/m.exec(text) as unknown as [string, string, string];
      expect(readFileSync(join(ROOT, 'python', `${name.replaceAll('.', '/')}.py`), 'utf8')).toMatch(
        new RegExp(`^(def|class) ${what}\\b`, 'm'),
      );
      await run(PYTHON, ['-c', 'import ast, sys; ast.parse(sys.argv[1])', text]);
    }
  });
});
