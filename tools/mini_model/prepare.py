"""Makes the training data: dialogues as token streams, and, from two corpora, passages and a vocabulary.

Writes to the output folder: passages.json, vocab.json, train.bin and val.bin (little-endian 16-bit ids, each
dialogue followed by <|endoftext|>).
"""

import argparse
import array
import json
import pathlib
import random
import re
import sys

from dialogues import DialogueGenerator
from tokenizer import SPECIAL_TOKENS, Tokenizer, learn

HERE = pathlib.Path(__file__).parent
PASSAGES_PER_LANGUAGE = 6000
# Characters of each corpus that are used, and that the vocabulary is learned from besides dialogues.
CORPUS_CHARACTERS = {"en": 4_000_000, "fr": 6_000_000}
VOCABULARY_CHARACTERS = 1_500_000
VOCABULARY_DIALOGUES = 12_000
TRAINING_SEED, VALIDATION_SEED, VOCABULARY_SEED = 123, 999, 0
VALIDATION_DIALOGUES = 2000


def read_corpus(path, characters):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="ignore")[:characters]


def choose_passages(corpus, count, seed):
    """One or two sentences each, that begin with a capital letter and are 31 to 159 characters long."""
    draw = random.Random(seed)
    sentences = [re.sub(r"\s+", " ", sentence).strip() for sentence in re.split(r"(?<=[.!?])\s+", corpus)]
    sentences = [s for s in sentences if 30 < len(s) < 160 and re.match("[A-ZÀÂÉÈÊÎÔÛÇ]", s)]
    if len(sentences) < 4:
        sys.exit("prepare.py: the corpus has fewer than 4 sentences of 31 to 159 characters")
    passages = []
    for _ in range(count):
        first = draw.randrange(len(sentences) - 3)
        passages.append(" ".join(sentences[first:first + draw.choice([1, 1, 1, 2])]))
    return passages


def learn_vocabulary(corpora, passages):
    generator = DialogueGenerator(VOCABULARY_SEED, passages)
    dialogues = "".join(generator.dialogue().chatml() for _ in range(VOCABULARY_DIALOGUES))
    special = "|".join(map(re.escape, SPECIAL_TOKENS))
    text = re.sub(special, "\n", dialogues)
    return Tokenizer(*learn(text + "".join(corpora[language][:VOCABULARY_CHARACTERS] for language in ("en", "fr"))))


def write_stream(path, seed, count, passages, tokenizer):
    generator = DialogueGenerator(seed, passages)
    end = tokenizer.id("<|endoftext|>")
    stream = array.array("H")
    for done in range(count):
        if sys.stderr.isatty() and done % 2000 == 0:
            print(f"\r{path.name}: {done} of {count} dialogues", end="", file=sys.stderr)
        stream.extend(tokenizer.encode(generator.dialogue().chatml()))
        stream.append(end)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if sys.byteorder == "big":
        stream.byteswap()
    path.write_bytes(stream.tobytes())
    print(f"{path}: {count} dialogues, {len(stream)} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder for the files; made if missing")
    parser.add_argument("--english", help="English corpus, a UTF-8 text file")
    parser.add_argument("--french", help="French corpus, a UTF-8 text file")
    parser.add_argument("--passages", default=HERE / "passages-sample.json",
                        help="passages to use when no corpora are given (default: the shipped sample)")
    parser.add_argument("--learn-vocabulary", action="store_true",
                        help="learn a new vocabulary from the corpora instead of using the shipped one")
    parser.add_argument("--dialogues", type=int, default=200_000, help="training dialogues (default: 200000)")
    options = parser.parse_args()
    if bool(options.english) != bool(options.french):
        parser.error("give both corpora or neither")
    if options.learn_vocabulary and not options.english:
        parser.error("--learn-vocabulary needs --english and --french")

    options.output.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.load(HERE / "vocab.json")
    if options.english:
        corpora = {"en": read_corpus(options.english, CORPUS_CHARACTERS["en"]),
                   "fr": read_corpus(options.french, CORPUS_CHARACTERS["fr"])}
        passages = {"en": choose_passages(corpora["en"], PASSAGES_PER_LANGUAGE, seed=1),
                    "fr": choose_passages(corpora["fr"], PASSAGES_PER_LANGUAGE, seed=2)}
        if options.learn_vocabulary:
            tokenizer = learn_vocabulary(corpora, passages)
    else:
        passages = json.loads(pathlib.Path(options.passages).read_text(encoding="utf-8"))
    with open(options.output / "passages.json", "w", encoding="utf-8") as file:
        json.dump(passages, file)
    tokenizer.save(options.output / "vocab.json")
    write_stream(options.output / "train.bin", TRAINING_SEED, options.dialogues, passages, tokenizer)
    write_stream(options.output / "val.bin", VALIDATION_SEED, VALIDATION_DIALOGUES, passages, tokenizer)


if __name__ == "__main__":
    main()
