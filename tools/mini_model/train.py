"""Trains a mini model on what prepare.py wrote and exports it. Needs PyTorch (1.13 was used) and NumPy.

The learning rate falls to zero over the given minutes, so the result depends on how fast the machine is.
"""

import argparse
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

from architecture import ARCHITECTURES
from export import export
from model import LanguageModel, gguf_tensors
from tokenizer import VOCABULARY_SIZE, Tokenizer

BATCH = 16
WINDOW = 256  # tokens
PEAK_RATE = 3e-3
WARM_UP_STEPS = 60
FINAL_SHARE = 0.02  # of the peak rate
WEIGHT_DECAY = 0.05
SAVE_EVERY = 500  # steps


def read_stream(path):
    return torch.from_numpy(np.fromfile(path, dtype="<u2").astype(np.int64))


def dialogue_starts(stream, end):
    """Where a window may begin: behind the end of a dialogue, with a whole window to follow."""
    starts = (stream == end).nonzero()[:, 0] + 1
    return starts[starts < len(stream) - WINDOW - 2]


def windows(stream, starts):
    return stream[starts[:, None] + torch.arange(WINDOW + 1)[None]]


def optimiser_for(model):
    def matrix(parameter):
        return parameter.dim() == 2 and parameter.shape[1] > 4  # the convolution is not one

    parameters = list(model.parameters())
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if matrix(p)], "weight_decay": WEIGHT_DECAY},
         {"params": [p for p in parameters if not matrix(p)], "weight_decay": 0.0}],
        lr=1, betas=(0.9, 0.97), eps=1e-9)


def loss_of(logits, batch):
    return F.cross_entropy(logits.float().reshape(-1, VOCABULARY_SIZE), batch[:, 1:].reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", choices=sorted(ARCHITECTURES))
    parser.add_argument("--data", required=True, type=pathlib.Path, help="the folder that prepare.py wrote")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder for ARCHITECTURE-f16.gguf and .pt")
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resume", help="checkpoint to start from")
    options = parser.parse_args()
    architecture = ARCHITECTURES[options.architecture]
    options.output.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.load(options.data / "vocab.json")
    end = tokenizer.id("<|endoftext|>")
    training = read_stream(options.data / "train.bin")
    validation = read_stream(options.data / "val.bin")
    starts = dialogue_starts(training, end)
    validation_batch = windows(validation, dialogue_starts(validation, end)[::40][:BATCH])
    model = LanguageModel(architecture)
    if options.resume:
        model.load_state_dict(torch.load(options.resume))
    print(f"{architecture.name}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    optimiser = optimiser_for(model)
    generator = torch.Generator().manual_seed(1)

    def save():
        tensors = gguf_tensors(model)
        export(options.output / f"{architecture.name}-f16.gguf", architecture, tokenizer,
               lambda tensor: tensors[tensor.name])
        torch.save(model.state_dict(), options.output / f"{architecture.name}.pt")

    begin = time.monotonic()
    step = 0
    while (share := (time.monotonic() - begin) / 60 / options.minutes) < 1:
        cosine = 0.5 * (1 + math.cos(math.pi * share))
        rate = PEAK_RATE * min(1, (step + 1) / WARM_UP_STEPS) * (FINAL_SHARE + (1 - FINAL_SHARE) * cosine)
        for group in optimiser.param_groups:
            group["lr"] = rate
        batch = windows(training, starts[torch.randint(len(starts), (BATCH,), generator=generator)])
        with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
        loss = loss_of(logits, batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step < 3 or step % 50 == 0:
            seconds = time.monotonic() - begin
            print(f"step {step} loss {loss.item():.4f} rate {rate:.2e} {seconds / 60:.1f} min "
                  f"{step * BATCH * WINDOW / seconds:.0f} tokens/s", flush=True)
        if step % SAVE_EVERY == 0:
            with torch.no_grad():
                print(f"  validation {loss_of(model(validation_batch[:, :-1]), validation_batch).item():.4f}", flush=True)
            save()
    save()
    print(f"done after {step} steps")


if __name__ == "__main__":
    main()
