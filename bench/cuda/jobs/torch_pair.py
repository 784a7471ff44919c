"""Two processes on one device, each taking what it can get: together they must stay within the one budget."""

import json
import time

import torch


def grab(queue, done):
    hoard = [torch.zeros(1, device="cuda")]
    queue.put("ready")
    error = None
    try:
        for _ in range(4096):
            hoard.append(torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda"))
            time.sleep(0.005)
    except torch.cuda.OutOfMemoryError as caught:
        error = str(caught).splitlines()[0][:200]
    queue.put((len(hoard) - 1, error))
    done.wait()


if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    processes = [context.Process(target=grab, args=(queue, done)) for _ in range(2)]
    for process in processes:
        process.start()
    answers = [queue.get(timeout=60) for _ in range(4)]
    time.sleep(1)
    done.set()
    for process in processes:
        process.join(20)
    results = [answer for answer in answers if answer != "ready"]
    print(json.dumps({"chunks": [count for count, _ in results], "is_torch_oom": all(error for _, error in results),
                      "text": results[0][1], "allocations": sum(count for count, _ in results),
                      "recovered": all(process.exitcode == 0 for process in processes)}))
