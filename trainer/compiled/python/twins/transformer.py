"""Twin of trainer/models/builtin/transformer.h."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).split(width, 2))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(seen.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_expansion = nn.Linear(width, 4 * width)
        self.mlp_projection = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        hidden = F.gelu(self.mlp_expansion(self.mlp_norm(x)), approximate="tanh")
        return x + self.mlp_projection(hidden)


class Transformer(nn.Module):
    def __init__(self, vocabulary, context, blocks, heads, width, untied, seed):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if not untied:
            self.lm_head.weight = self.token_embedding.weight
        torch.manual_seed(seed)
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                residual = name.endswith("projection.weight")
                nn.init.normal_(parameter,
                                std=0.02 / math.sqrt(2 * blocks) if residual else 0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.norm(x))

    def loss(self, fields, autocast):
        tokens = fields["tokens"]
        with autocast:
            logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def metrics(self, fields):
        tokens = fields["tokens"]
        right = self(tokens[:, :-1]).argmax(2) == tokens[:, 1:]
        return {"accuracy": right.double().mean()}
