"""in_torch.py eager|compile THREADS: the same steps in PyTorch, with its own layers, as its users write them. The protocol is that of
peer.cpp."""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

RATE = 0.01


def scores(h, parameters):
    i = 0
    while i < len(parameters) and parameters[i].dim() == 4:
        h = F.max_pool2d(F.relu(F.conv2d(h, parameters[i], parameters[i + 1], padding=1)), 2)
        i += 2
    h = h.flatten(1)
    while i < len(parameters):
        h = torch.addmm(parameters[i + 1], h, parameters[i])
        i += 2
        if i < len(parameters):
            h = F.relu(h)
    return h


class Training:
    def __init__(self, name, folder, compiled):
        tensors = {}
        for line in open(f"{folder}/{name}.txt"):
            tensor, *shape = line.split()
            kind = np.int64 if tensor == "labels" else np.float32
            tensors[tensor] = torch.from_numpy(np.fromfile(f"{folder}/{name}.{tensor}", kind).reshape([int(e) for e in shape]))
        self.x, self.labels = tensors.pop("x"), tensors.pop("labels")
        self.parameters = [t.requires_grad_() for t in tensors.values()]
        self.optimizer = torch.optim.SGD(self.parameters, RATE)
        self.loss_of = lambda x, t, p: F.cross_entropy(scores(x, p), t)
        self.update = self.optimizer.step
        if compiled:
            self.loss_of, self.update = torch.compile(self.loss_of), torch.compile(self.update)
        self.step()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.loss_of(self.x, self.labels, self.parameters)
        self.loss.backward()
        self.update()


def main():
    torch.set_num_threads(int(sys.argv[2]))
    training = None
    for line in sys.stdin:
        command, *words = line.split()
        if command == "load":
            training = Training(*words, compiled=sys.argv[1] == "compile")
            print("ok", flush=True)
        elif command == "run":
            times = []
            for _ in range(int(words[0])):
                start = time.perf_counter()
                training.step()
                times.append(time.perf_counter() - start)
            print(*(f"{t:.9f}" for t in times), flush=True)
        else:
            print(f"{training.loss.item():.9g}", flush=True)


main()
