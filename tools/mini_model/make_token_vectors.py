"""Writes texts with the ids that tokenizer.py gives them, one JSON object a line, to hold the engine to."""

import argparse
import json
import pathlib
import sys

from dialogues import DialogueGenerator
from tokenizer import Tokenizer

HERE = pathlib.Path(__file__).parent
SEED = 77
# Each text is about one rule: contractions, digits one by one, marks, white space before and between lines,
# characters outside the vocabulary, special tokens inside text.
TEXTS = [
    "", " ", "  two", "a", "It's they'LL we're I'd", "'s", "''s'", "don’t", "12345 6,789.0", "x1y22z",
    "e\u0301te\u0301 na\u00efve \u00c9t\u00e9", "\u0301alone", " \u0301mark", "tabs\tand\t\ttabs", "line\nline\r\n\r\nline  \n  end ",
    "   \n\n   x", "trailing   ", "no\u00a0break \u2003em", "a_b __init__ _", "snake_case1", "...!?!\n\nNext", " (brackets) [x]",
    "日本語のテキスト", "Привет, мир", "مرحبا ١٢٣", "🙂👍🏽 ok", "½ Ⅷ ²", "<think>\nno\n</think>\n\nyes", "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|><|endoftext|>", "<|im_start", "\x1c\x1f separators", "A\u2028B", "\ufeffmark", "\U000e0001",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--dialogues", type=int, default=40, help="dialogues besides the fixed texts (default: 40)")
    options = parser.parse_args()
    passages = json.loads((HERE / "passages-sample.json").read_text(encoding="utf-8"))
    generator = DialogueGenerator(SEED, passages)
    tokenizer = Tokenizer.load(HERE / "vocab.json")
    texts = TEXTS + [generator.dialogue().chatml() for _ in range(options.dialogues)]
    lines = [json.dumps({"text": text, "ids": tokenizer.encode(text)}, separators=(",", ":")) + "\n" for text in texts]
    options.output.write_text("".join(lines), encoding="utf-8")
    print(f"{options.output}: {len(lines)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
