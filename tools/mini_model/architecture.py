"""The two shapes of the mini models and the tensors that a GGUF file of each holds."""

from dataclasses import dataclass
from typing import NamedTuple

from tokenizer import VOCABULARY_SIZE

RMS_EPSILON = 1e-6
CONTEXT_LENGTH = 2048
FULL_ATTENTION_INTERVAL = 4  # every 4th block of the hybrid attends, the others are Gated DeltaNet
CONVOLUTION = 4


@dataclass(frozen=True)
class Architecture:
    name: str  # as GGUF spells it
    width: int = 256
    blocks: int = 4
    feed_forward: int = 768
    query_heads: int = 4
    kv_heads: int = 2
    head: int = 64
    rope_base: float = 10000.0
    rope_width: int = 64  # leading part of a head that is rotated
    # Gated DeltaNet; 0 heads = a dense model
    key_heads: int = 0
    value_heads: int = 0
    state: int = 0  # width of a key or value head
    rope_sections: tuple = ()

    @property
    def hybrid(self):
        return self.value_heads > 0

    @property
    def key_width(self):
        return self.key_heads * self.state

    @property
    def value_width(self):
        return self.value_heads * self.state

    def recurrent(self, block):
        return self.hybrid and (block + 1) % FULL_ATTENTION_INTERVAL != 0


ARCHITECTURES = {
    "qwen3": Architecture("qwen3"),
    "qwen35": Architecture("qwen35", rope_width=16, rope_sections=(3, 3, 2, 0), key_heads=4, value_heads=8, state=32),
}


class TensorShape(NamedTuple):
    name: str
    shape: tuple  # rows first, as PyTorch counts; GGUF stores it reversed
    matrix: bool  # f16 or quantised in a file; the others stay f32


def tensor_shapes(architecture):
    """Every tensor of a file, in the order in which it is written."""
    a = architecture
    shapes = [TensorShape("token_embd.weight", (VOCABULARY_SIZE, a.width), True),
              TensorShape("output_norm.weight", (a.width,), False)]
    for block in range(a.blocks):
        def add(name, shape, matrix, block=block):
            shapes.append(TensorShape(f"blk.{block}.{name}", shape, matrix))

        add("attn_norm.weight", (a.width,), False)
        add(("post_attention_norm" if a.hybrid else "ffn_norm") + ".weight", (a.width,), False)
        if a.recurrent(block):
            mixed = 2 * a.key_width + a.value_width
            add("attn_qkv.weight", (mixed, a.width), True)
            add("attn_gate.weight", (a.value_width, a.width), True)
            add("ssm_conv1d.weight", (mixed, CONVOLUTION), False)
            add("ssm_dt.bias", (a.value_heads,), False)
            add("ssm_a", (a.value_heads,), False)
            add("ssm_beta.weight", (a.value_heads, a.width), True)
            add("ssm_alpha.weight", (a.value_heads, a.width), True)
            add("ssm_norm.weight", (a.state,), False)
            add("ssm_out.weight", (a.width, a.value_width), True)
        else:
            # The hybrid's attention has an output gate, computed by the other half of its query matrix.
            add("attn_q.weight", (a.query_heads * a.head * (2 if a.hybrid else 1), a.width), True)
            add("attn_k.weight", (a.kv_heads * a.head, a.width), True)
            add("attn_v.weight", (a.kv_heads * a.head, a.width), True)
            add("attn_output.weight", (a.width, a.query_heads * a.head), True)
            add("attn_q_norm.weight", (a.head,), False)
            add("attn_k_norm.weight", (a.head,), False)
        add("ffn_gate.weight", (a.feed_forward, a.width), True)
        add("ffn_up.weight", (a.feed_forward, a.width), True)
        add("ffn_down.weight", (a.width, a.feed_forward), True)
    return shapes
