#!/usr/bin/env python3
"""A small language model of your own text, by bytes: python language_model.py TEXT... [--steps N] [--prompt TEXT]

Trains with the daemon that GENESIS_SERVER names, then continues the prompt with the trained weights."""

import argparse

import torch
from torch import nn
from torch.nn import functional

import genesis

CONTEXT = 128


class ByteModel(nn.Module):
    """A transformer decoder over bytes."""

    def __init__(self, width=128, layers=2, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)  # True: hidden from attention.
        hidden = self.tokens(ids) + self.places(torch.arange(length, device=ids.device))
        return self.head(self.norm(self.blocks(hidden, mask=mask, is_causal=True)))


def next_byte_loss(model, batch):
    logits = model(batch["ids"][:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch["ids"][:, 1:].flatten())


@torch.no_grad()
def continued(model, prompt, count=200):
    ids = list(prompt.encode())
    for _ in range(count):
        logits = model(torch.tensor([ids[-CONTEXT:]]))[0, -1]
        ids.append(int(torch.multinomial(functional.softmax(logits / 0.7, dim=-1), 1)))
    return bytes(ids).decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+", help="UTF-8 text files")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--prompt", default="The ")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = ByteModel()
    with genesis.Client() as client:
        job = client.train(model, genesis.from_text(arguments.text, CONTEXT + 1), loss=next_byte_loss, max_steps=arguments.steps, batch_size=16,
                           learning_rate=2e-3)
        print(f"job {job.id}")
        job.watch()
        model.load_state_dict(job.checkpoint().model_state_dict)
    print(f"held-out loss {job.message.evaluation.loss:.3f}; uniform bytes have 5.545")
    print(continued(model.eval(), arguments.prompt))


if __name__ == "__main__":
    main()
