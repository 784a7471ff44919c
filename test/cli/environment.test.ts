import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findBatch, submitted } from './contract.js';
import { Oomtune, PYTHON } from './oomtune.js';

const oomtune = new Oomtune();
const WHERE = ['--device', 'cpu', '--budget', '60MiB', '--max-batch', '8', '--max-launches', '2'];
const env = { DATA_DIR: '/data', MY_API_KEY: 'hunter2', OMPI_MCA_plm: 'isolated', PYTHONPATH: '/own/modules' };
const SCRIPT = `
import os, sys
assert os.environ["DATA_DIR"] == "/data" and os.environ["MY_API_KEY"] == "hunter2"
assert os.environ["OMPI_MCA_plm"] == "isolated"
assert "/own/modules" in os.environ["PYTHONPATH"].split(":")
import torch
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
`;
beforeAll(() => writeFileSync(join(oomtune.home, 'train.py'), SCRIPT));
afterAll(() => oomtune.close());

describe('the launches of a search', () => {
  it('have the same environment as the run after it', async () => {
    const report = findBatch.parse(await oomtune.json(['find-batch', ...WHERE, '--', PYTHON, 'train.py'], { env }));
    expect(report.status).toBe('found');
    const { code, stderr } = await oomtune.call(['run', ...WHERE, '--', PYTHON, 'train.py'], { env });
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(`${stderr}${JSON.stringify(report)}`).not.toContain('hunter2');
  });
});

describe('retry', () => {
  it('says whose environment the job gets, and which of the variables that were named are not set', async () => {
    const args = ['--device', 'cpu', '--preset', 'none', '--env', 'GIVEN=1', '--env', 'MY_API_KEY', '--', 'true'];
    const { job } = submitted.parse(await oomtune.json(['submit', ...args], { env }));
    expect((await oomtune.call(['cancel', job])).code).toBe(0);
    const { code, stdout, stderr } = await oomtune.call(['retry', job], { env });
    expect([code, stdout]).toEqual([0, `${job}\n`]);
    expect(stderr).toContain("it gets this shell's");
    expect(stderr).toMatch(/though --env named it: GIVEN\.$/m);
  });
});

describe('submit to another host', () => {
  it('says what stays behind, by name', async () => {
    const args = ['submit', '--device', 'cpu', '--host', 'elsewhere', '--', 'true'];
    const { code, stderr } = await oomtune.call(args, { env });
    expect(code).toBe(0);
    expect(stderr).toMatch(/^MY_API_KEY, DATA_DIR stayed on /m);
    expect(stderr).not.toContain('hunter2');
  });
});
