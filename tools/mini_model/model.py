"""Reference implementation of both architectures in PyTorch, written to be trained on a CPU.

Shapes in comments: B sequences, T tokens, H query heads, K key-value heads, D head width, N chunks of C tokens.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from architecture import CONVOLUTION, RMS_EPSILON, tensor_shapes
from tokenizer import VOCABULARY_SIZE

CHUNK = 32  # tokens that the gated delta rule handles at once; sequences are a multiple of it


def rms_norm(x, weight=None):
    normal = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + RMS_EPSILON)
    return normal if weight is None else normal * weight


def l2_norm(x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True).clamp_min(1e-12))


def rotate(x, base, width):
    """Rotary position on the leading `width` of each head, halves paired. x: [B, T, heads, D]"""
    half = width // 2
    frequency = base ** (-torch.arange(0, half).float() * 2 / width)
    angle = torch.arange(x.shape[1]).float()[:, None] * frequency[None]
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    first, second, rest = x[..., :half], x[..., half:width], x[..., width:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


class Linear(nn.Module):
    def __init__(self, inputs, outputs, deviation=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * (deviation or inputs**-0.5))

    def forward(self, x):
        return F.linear(x, self.weight)


def output_linear(inputs, outputs, blocks):
    """A projection that adds to the residual stream: smaller with the number of additions."""
    return Linear(inputs, outputs, inputs**-0.5 / math.sqrt(2 * blocks))


class FeedForward(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gate = Linear(a.width, a.feed_forward)
        self.up = Linear(a.width, a.feed_forward)
        self.down = output_linear(a.feed_forward, a.width, a.blocks)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    """Causal attention with grouped queries; the hybrid's output is gated by a second half of the query matrix."""

    def __init__(self, a):
        super().__init__()
        self.a = a
        self.query = Linear(a.width, a.query_heads * a.head * (2 if a.hybrid else 1))
        self.key = Linear(a.width, a.kv_heads * a.head)
        self.value = Linear(a.width, a.kv_heads * a.head)
        self.output = output_linear(a.query_heads * a.head, a.width, a.blocks)
        self.query_norm = nn.Parameter(torch.ones(a.head))
        self.key_norm = nn.Parameter(torch.ones(a.head))

    def forward(self, x):
        a = self.a
        B, T, _ = x.shape
        H, K, D = a.query_heads, a.kv_heads, a.head
        q = self.query(x)
        gate = None
        if a.hybrid:
            q = q.view(B, T, H, 2 * D)
            q, gate = q[..., :D], q[..., D:].reshape(B, T, H * D)
        else:
            q = q.view(B, T, H, D)
        k = self.key(x).view(B, T, K, D)
        v = self.value(x).view(B, T, K, D)
        q = rotate(rms_norm(q, self.query_norm), a.rope_base, a.rope_width)
        k = rotate(rms_norm(k, self.key_norm), a.rope_base, a.rope_width)
        k = k.repeat_interleave(H // K, 2)
        v = v.float().repeat_interleave(H // K, 2)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(D)
        causal = torch.ones(T, T, dtype=torch.bool).tril()
        weights = scores.masked_fill(~causal, -1e30).softmax(-1)
        y = torch.einsum("bhts,bshd->bthd", weights, v).reshape(B, T, H * D)
        if gate is not None:
            y = y * torch.sigmoid(gate.float())
        return self.output(y)


class GatedDeltaNet(nn.Module):
    """The recurrent layer: a state matrix per head that decays and is corrected towards each new value.

    Per token: S = exp(g) * S; S += beta * k (v - S^T k)^T; output S^T q. Trained in its chunked form.
    """

    def __init__(self, a):
        super().__init__()
        self.a = a
        mixed = 2 * a.key_width + a.value_width
        self.qkv = Linear(a.width, mixed)
        self.gate = Linear(a.width, a.value_width)
        self.convolution = nn.Parameter(torch.randn(mixed, CONVOLUTION) * 0.3)
        self.beta = Linear(a.width, a.value_heads)
        self.alpha = Linear(a.width, a.value_heads)
        self.time_bias = nn.Parameter(torch.rand(a.value_heads) * 2 - 4.0)
        self.log_decay = nn.Parameter(torch.log(torch.rand(a.value_heads) * 8 + 0.5))
        self.norm = nn.Parameter(torch.ones(a.state))
        self.output = output_linear(a.value_width, a.width, a.blocks)

    def forward(self, x):
        a = self.a
        B, T, _ = x.shape
        S = a.state
        mixed = self.qkv(x).float()
        gate = self.gate(x).float()
        past = F.pad(mixed.transpose(1, 2), (CONVOLUTION - 1, 0))
        mixed = F.silu(F.conv1d(past, self.convolution[:, None], groups=past.shape[1]).transpose(1, 2))
        q, k, v = mixed.split([a.key_width, a.key_width, a.value_width], -1)
        q = l2_norm(q.reshape(B, T, a.key_heads, S)) * S**-0.5
        k = l2_norm(k.reshape(B, T, a.key_heads, S))
        v = v.reshape(B, T, a.value_heads, S)
        # Value head i belongs to key head i % key_heads.
        q = q.repeat(1, 1, a.value_heads // a.key_heads, 1)
        k = k.repeat(1, 1, a.value_heads // a.key_heads, 1)
        with torch.cpu.amp.autocast(enabled=False):
            xf = x.float()
            beta = torch.sigmoid(F.linear(xf, self.beta.weight))
            log_forget = -self.log_decay.exp() * F.softplus(F.linear(xf, self.alpha.weight) + self.time_bias)
            y = self._delta_rule(q, k, v, beta, log_forget)
            y = rms_norm(y, self.norm) * F.silu(gate.view(B, T, a.value_heads, S))
        return self.output(y.reshape(B, T, a.value_width))

    def _delta_rule(self, q, k, v, beta, log_forget):
        """q, k, v: [B, T, heads, S]; beta, log_forget: [B, T, heads]"""
        B, T, heads, S = v.shape
        N, C = T // CHUNK, CHUNK

        def chunks(t):  # [N, B, heads, C, S]
            return t.reshape(B, N, C, heads, -1).permute(1, 0, 3, 2, 4)

        q, k, v = chunks(q), chunks(k), chunks(v)
        beta = beta.reshape(B, N, C, heads).permute(1, 0, 3, 2)
        decay = log_forget.reshape(B, N, C, heads).permute(1, 0, 3, 2).cumsum(-1)  # since the chunk began
        between = decay[..., :, None] - decay[..., None, :]  # log of what is left at a row's token of a column's
        causal = torch.ones(C, C, dtype=torch.bool).tril()
        between = torch.where(causal, between, torch.full_like(between, -1e4)).exp()
        # The corrections of a chunk depend on each other triangularly: (I + A) U = beta V.
        A = (beta[..., None] * (k @ k.transpose(-1, -2)) * between).tril(-1)
        identity = torch.eye(C)
        solved = torch.linalg.solve_triangular(identity + A, identity.expand_as(A), upper=False, unitriangular=True)
        U = solved @ (beta[..., None] * v)
        W = solved @ ((beta * decay.exp())[..., None] * k)
        within = (q @ k.transpose(-1, -2)) * between
        q_decayed = q * decay.exp()[..., None]
        k_decayed = k * (decay[..., -1:] - decay).exp()[..., None]
        whole = decay[..., -1].exp()[..., None, None]
        state = torch.zeros(B, heads, S, S)
        outputs = []
        for n in range(N):
            correction = U[n] - W[n] @ state
            outputs.append(q_decayed[n] @ state + within[n] @ correction)
            state = whole[n] * state + k_decayed[n].transpose(-1, -2) @ correction
        return torch.stack(outputs).permute(1, 0, 3, 2, 4).reshape(B, T, heads, S)


class Block(nn.Module):
    def __init__(self, a, index):
        super().__init__()
        self.recurrent = a.recurrent(index)
        self.mixer_norm = nn.Parameter(torch.ones(a.width))
        self.feed_forward_norm = nn.Parameter(torch.ones(a.width))
        self.mixer = GatedDeltaNet(a) if self.recurrent else Attention(a)
        self.feed_forward = FeedForward(a)

    def forward(self, x):
        x = x + self.mixer(rms_norm(x, self.mixer_norm))
        return x + self.feed_forward(rms_norm(x, self.feed_forward_norm))


class LanguageModel(nn.Module):
    """Token ids [B, T] to logits [B, T, vocabulary]; the embedding is also the output head."""

    def __init__(self, a):
        super().__init__()
        self.a = a
        self.embedding = nn.Parameter(torch.randn(VOCABULARY_SIZE, a.width) * 0.05)
        self.blocks = nn.ModuleList([Block(a, index) for index in range(a.blocks)])
        self.output_norm = nn.Parameter(torch.ones(a.width))

    def forward(self, tokens):
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            x = block(x)
        return F.linear(rms_norm(x, self.output_norm), self.embedding)


def gguf_tensors(model):
    """Bytes of every tensor by its name in a GGUF file: f16 for a matrix, f32 otherwise."""
    named = {"token_embd.weight": model.embedding, "output_norm.weight": model.output_norm}
    for index, block in enumerate(model.blocks):
        mixer = block.mixer
        parts = {
            "attn_norm.weight": block.mixer_norm,
            ("post_attention_norm" if model.a.hybrid else "ffn_norm") + ".weight": block.feed_forward_norm,
            "ffn_gate.weight": block.feed_forward.gate.weight,
            "ffn_up.weight": block.feed_forward.up.weight,
            "ffn_down.weight": block.feed_forward.down.weight,
        }
        if block.recurrent:
            parts |= {
                "attn_qkv.weight": mixer.qkv.weight,
                "attn_gate.weight": mixer.gate.weight,
                "ssm_conv1d.weight": mixer.convolution,
                "ssm_dt.bias": mixer.time_bias,
                "ssm_a": -mixer.log_decay.exp(),
                "ssm_beta.weight": mixer.beta.weight,
                "ssm_alpha.weight": mixer.alpha.weight,
                "ssm_norm.weight": mixer.norm,
                "ssm_out.weight": mixer.output.weight,
            }
        else:
            parts |= {
                "attn_q.weight": mixer.query.weight,
                "attn_k.weight": mixer.key.weight,
                "attn_v.weight": mixer.value.weight,
                "attn_output.weight": mixer.output.weight,
                "attn_q_norm.weight": mixer.query_norm,
                "attn_k_norm.weight": mixer.key_norm,
            }
        named |= {f"blk.{index}.{name}": tensor for name, tensor in parts.items()}
    encoded = {}
    for expected in tensor_shapes(model.a):
        tensor = named[expected.name].detach()
        tensor = tensor.half() if expected.matrix else tensor.float()
        encoded[expected.name] = tensor.contiguous().numpy().tobytes()
    return encoded
