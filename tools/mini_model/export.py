"""Writes a mini model as a GGUF file: trained weights, or random ones to try the format without training."""

import argparse
import array
import pathlib
import random
import struct
import sys

import gguf_writer as gguf
from architecture import (
    ARCHITECTURES, CONTEXT_LENGTH, CONVOLUTION, FULL_ATTENTION_INTERVAL, RMS_EPSILON, tensor_shapes)
from tokenizer import CONTROL_TOKENS, THOUGHT_TOKENS, Tokenizer

HERE = pathlib.Path(__file__).parent
MOSTLY_F16 = 1  # general.file_type
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # token types

# Qwen's ChatML: earlier thoughts are dropped, and an answer without thinking opens with an empty thought.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- set content = message.content -%}"
    "{%- if message.role == 'assistant' and '</think>' in content -%}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}"
    "{%- endif -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{- '<|im_start|>assistant\\n<think>\\n' -}}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '\\n</think>\\n\\n' -}}{%- endif -%}"
    "{%- endif -%}")


def add_metadata(writer, architecture, tokenizer):
    a = architecture

    def number(key, value):
        writer.add(f"{a.name}.{key}", gguf.UINT32, value)

    writer.add("general.architecture", gguf.STRING, a.name)
    writer.add("general.name", gguf.STRING, "kazeia-mini")
    writer.add("general.description", gguf.STRING, "Tiny bilingual test model trained on generated dialogues")
    writer.add("general.license", gguf.STRING, "CC0-1.0")
    number("block_count", a.blocks)
    number("context_length", CONTEXT_LENGTH)
    number("embedding_length", a.width)
    number("feed_forward_length", a.feed_forward)
    number("attention.head_count", a.query_heads)
    number("attention.head_count_kv", a.kv_heads)
    number("attention.key_length", a.head)
    number("attention.value_length", a.head)
    writer.add(f"{a.name}.attention.layer_norm_rms_epsilon", gguf.FLOAT32, RMS_EPSILON)
    writer.add(f"{a.name}.rope.freq_base", gguf.FLOAT32, a.rope_base)
    writer.add("general.file_type", gguf.UINT32, MOSTLY_F16)
    if a.hybrid:
        number("full_attention_interval", FULL_ATTENTION_INTERVAL)
        writer.add_array(f"{a.name}.rope.dimension_sections", gguf.INT32, a.rope_sections)
        number("rope.dimension_count", a.rope_width)
        number("ssm.conv_kernel", CONVOLUTION)
        number("ssm.inner_size", a.value_width)
        number("ssm.state_size", a.state)
        number("ssm.time_step_rank", a.value_heads)
        number("ssm.group_count", a.key_heads)
    writer.add("tokenizer.ggml.model", gguf.STRING, "gpt2")
    # The vocabulary was learned with Qwen3.5's splitting rule; Qwen3's differs for combining marks only.
    writer.add("tokenizer.ggml.pre", gguf.STRING, "qwen35" if a.hybrid else "qwen2")
    writer.add_array("tokenizer.ggml.tokens", gguf.STRING, tokenizer.tokens)
    types = [UNUSED if index in tokenizer.unused else NORMAL for index in range(len(tokenizer.tokens))]
    for token in CONTROL_TOKENS:
        types[tokenizer.id(token)] = CONTROL
    for token in THOUGHT_TOKENS:
        types[tokenizer.id(token)] = USER_DEFINED
    writer.add_array("tokenizer.ggml.token_type", gguf.INT32, types)
    writer.add_array("tokenizer.ggml.merges", gguf.STRING, tokenizer.merges)
    writer.add("tokenizer.ggml.eos_token_id", gguf.UINT32, tokenizer.id("<|im_end|>"))
    writer.add("tokenizer.ggml.bos_token_id", gguf.UINT32, tokenizer.id("<|endoftext|>"))
    writer.add("tokenizer.ggml.padding_token_id", gguf.UINT32, tokenizer.id("<|endoftext|>"))
    writer.add("tokenizer.ggml.add_bos_token", gguf.BOOL, False)
    writer.add("tokenizer.chat_template", gguf.STRING, CHAT_TEMPLATE)


def export(path, architecture, tokenizer, data_of):
    """`data_of(shape)` gives the bytes of a TensorShape: f16 for a matrix, f32 otherwise."""
    writer = gguf.GgufWriter()
    add_metadata(writer, architecture, tokenizer)
    for tensor in tensor_shapes(architecture):
        writer.add_tensor(tensor.name, tensor.shape, gguf.F16 if tensor.matrix else gguf.F32, data_of(tensor))
    writer.write(path)


def random_data(seed):
    """Weights of a plausible size, so that a forward pass stays finite; norms are 1."""
    draw = random.Random(seed)

    def data_of(tensor):
        elements = 1
        for length in tensor.shape:
            elements *= length
        if tensor.matrix:
            return struct.pack(f"<{elements}e", *(draw.uniform(-0.05, 0.05) for _ in range(elements)))
        value = -1.0 if tensor.name.endswith("ssm_a") else 1.0
        values = array.array("f", [value] * elements)
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()

    return data_of


def trained_data(architecture, checkpoint):
    """Weights of a checkpoint that train.py wrote. Needs PyTorch."""
    import torch

    from model import LanguageModel, gguf_tensors
    model = LanguageModel(architecture)
    model.load_state_dict(torch.load(checkpoint))
    tensors = gguf_tensors(model)
    return lambda tensor: tensors[tensor.name]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", choices=sorted(ARCHITECTURES))
    parser.add_argument("output", help="the GGUF file to write")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", help="what train.py saved (needs PyTorch)")
    source.add_argument("--random", type=int, metavar="SEED", help="random weights: tries the format, not the model")
    parser.add_argument("--vocabulary", default=HERE / "vocab.json", help="default: the shipped one")
    options = parser.parse_args()
    architecture = ARCHITECTURES[options.architecture]
    if options.checkpoint:
        data_of = trained_data(architecture, options.checkpoint)
    else:
        data_of = random_data(options.random)
    export(options.output, architecture, Tokenizer.load(options.vocabulary), data_of)


if __name__ == "__main__":
    main()
