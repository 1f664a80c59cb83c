"""Checks of the generator that need neither PyTorch nor a corpus: python3 -m unittest mini_model_test"""

import hashlib
import json
import math
import pathlib
import tempfile
import unittest

from architecture import ARCHITECTURES, tensor_shapes
from dialogues import DialogueGenerator
from export import export
from make_dialogues import SEED, records
from make_token_vectors import TEXTS
from tokenizer import SPECIAL_TOKENS, Tokenizer, learn, split_words

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PASSAGES = json.loads((HERE / "passages-sample.json").read_text(encoding="utf-8"))
# sha256 of the first 2,000 dialogues of seed 4242 over the sample, as the generator that trained the shipped
# models printed them.
TRAINED_DIALOGUES = "da605a39b0079d8f67a973f8347c2894c3310e3d0da6aa3f2f28a4b302ed809d"


class Dialogues(unittest.TestCase):
    def test_are_those_that_the_shipped_models_were_trained_on(self):
        generator = DialogueGenerator(4242, PASSAGES)
        text = "".join(generator.dialogue().chatml() for _ in range(2000))
        self.assertEqual(hashlib.sha256(text.encode()).hexdigest(), TRAINED_DIALOGUES)

    def test_mark_a_recall_only_when_the_fact_was_stated(self):
        generator = DialogueGenerator(1, PASSAGES)
        for _ in range(500):
            stated = set()
            for turn in generator.dialogue().turns:
                if turn.recall:
                    self.assertIn(turn.kind, stated)
                stated.add(turn.kind)

    def test_end_their_messages_with_the_question(self):
        dialogue = DialogueGenerator(2, PASSAGES).dialogue()
        messages = dialogue.messages()
        self.assertEqual(messages[-1], {"role": "user", "content": dialogue.turns[-1].user})

    def test_in_the_shipped_vectors_are_the_generators(self):
        lines = (ROOT / "tests/vectors/dialogues.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual([json.loads(line) for line in lines], list(records(SEED, len(lines), PASSAGES)))


class Tokens(unittest.TestCase):
    def setUp(self):
        self.tokenizer = Tokenizer.load(HERE / "vocab.json")

    def decode(self, ids):
        from tokenizer import BYTE_CHARACTER
        byte_of = {character: byte for byte, character in BYTE_CHARACTER.items()}
        pieces = []
        for index in ids:
            token = self.tokenizer.tokens[index]
            pieces.append(token.encode() if token in SPECIAL_TOKENS else bytes(byte_of[c] for c in token))
        return b"".join(pieces).decode()

    def test_decode_to_the_text(self):
        for text in TEXTS:
            self.assertEqual(self.decode(self.tokenizer.encode(text)), text)

    def test_split_without_losing_a_character(self):
        for text in TEXTS:
            self.assertEqual("".join(split_words(text)), text)

    def test_split_by_qwens_rule(self):
        self.assertEqual(split_words("I'll pay 12 euros!\n\nok  then"),
                         ["I", "'ll", " pay", " ", "1", "2", " euros", "!\n\n", "ok", " ", " then"])

    def test_number_the_special_tokens_last(self):
        self.assertEqual(len(self.tokenizer.tokens), 2048)
        self.assertEqual(self.tokenizer.encode("<|im_end|>"), [2045])

    def test_learned_again_from_a_text_merge_its_commonest_pair_first(self):
        tokens, merges = learn("aab aab aab xy", vocabulary_size=300)
        self.assertEqual(merges[0], "a b")  # as common as "a a"; the later in order wins
        self.assertEqual(Tokenizer(tokens, merges).encode("aab"), [tokens.index("aab")])

    def test_in_the_shipped_vectors_are_the_tokenizers(self):
        for line in (ROOT / "tests/vectors/tokens.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            self.assertEqual(self.tokenizer.encode(record["text"]), record["ids"])


class Export(unittest.TestCase):
    def test_writes_the_shipped_files_byte_for_byte_from_their_own_weights(self):
        tokenizer = Tokenizer.load(HERE / "vocab.json")
        for name, architecture in ARCHITECTURES.items():
            shipped = (ROOT / f"models/kazeia-mini-{name}-f16.gguf").read_bytes()
            sizes = [math.prod(t.shape) * (2 if t.matrix else 4) for t in tensor_shapes(architecture)]
            position = len(shipped) - sum(size + -size % 32 for size in sizes)

            def weights(tensor):
                nonlocal position
                size = math.prod(tensor.shape) * (2 if tensor.matrix else 4)
                data = shipped[position:position + size]
                position += size + -size % 32
                return data

            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "again.gguf"
                export(path, architecture, tokenizer, weights)
                self.assertTrue(path.read_bytes() == shipped, name)

    def test_refuses_data_of_another_size(self):
        with self.assertRaises(ValueError):
            export("unwritten.gguf", ARCHITECTURES["qwen3"], Tokenizer.load(HERE / "vocab.json"), lambda tensor: b"")


if __name__ == "__main__":
    unittest.main()
