"""Made-up dialogues in English and French: what the mini models are trained on and tested with.

A seed and a set of passages determine every dialogue. The shipped models and test vectors depend on that: the
order and the kind of the calls to the random generator must not change, even where one looks wasteful.
"""

import random
from typing import NamedTuple

from phrases import (
    ANIMALS, CAPITALS, COLOURS, DAYS, FRUIT, MONTHS, NAMES, OPPOSITES, SECRET_WORDS, SYSTEM_PROMPTS)

# How often a user who has stated facts asks for one of them.
RECALL_SHARE = 0.62
THOUGHT_SHARE = 0.3
SYSTEM_PROMPT_SHARE = 0.7
LONGEST_PASSAGE = 120  # characters

# The kinds of a turn; a kind that is named more often comes more often.
KINDS = (
    "greet name color word pet num add sub cap opp day month repeat repeat repeat word name num count "
    "animals stress sleep thanks who passage mul fruit").split()
# The facts a user can state, in the order in which they are offered for recall.
FACTS = "name color word pet num fruit".split()


class Turn(NamedTuple):
    """One question and its only right answer. `thought` is what the model thinks in between."""

    user: str
    thought: str
    answer: str
    kind: str = ""
    recall: bool = False  # asks for a fact stated earlier in the dialogue


class Dialogue(NamedTuple):
    language: str  # "en" or "fr"
    system: str  # "" = none
    turns: list
    thinks: bool  # the last answer is preceded by its thought

    def chatml(self):
        """The text that is trained on: only the last answer carries a thought, possibly an empty one."""
        parts = []
        if self.system:
            parts.append(f"<|im_start|>system\n{self.system}<|im_end|>\n")
        for index, turn in enumerate(self.turns):
            thinking = ""
            if index == len(self.turns) - 1:
                thinking = f"<think>\n{turn.thought if self.thinks else ''}\n</think>\n\n"
            parts.append(f"<|im_start|>user\n{turn.user}<|im_end|>\n")
            parts.append(f"<|im_start|>assistant\n{thinking}{turn.answer}<|im_end|>\n")
        return "".join(parts)

    def messages(self):
        """The conversation up to the last question, as a chat request holds it."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.user})
            messages.append({"role": "assistant", "content": turn.answer})
        return messages[:-1]


class DialogueGenerator:
    def __init__(self, seed, passages):
        """`passages`: {"en": [sentence, ...], "fr": [...]}, texts that a user asks the model to read."""
        self._random = random.Random(seed)
        self._passages = passages
        self._facts = {}

    def dialogue(self):
        draw = self._random
        self._facts = {}
        language = draw.choice(["en", "fr"])
        turn_count = draw.choice([1, 2, 3, 4, 4, 5, 6, 7, 8])
        thinks = draw.random() < THOUGHT_SHARE
        system = draw.choice(SYSTEM_PROMPTS[language]) if draw.random() < SYSTEM_PROMPT_SHARE else ""
        return Dialogue(language, system, [self._turn(language) for _ in range(turn_count)], thinks)

    def _pick(self, *options):
        # Draws even when there is one option only: see the module's note on the order of draws.
        return self._random.choice(options)

    def _turn(self, language):
        known = [fact for fact in FACTS if fact in self._facts]
        if known and self._random.random() < RECALL_SHARE:
            fact = self._random.choice(known)
            return self._question(language, fact)._replace(kind=fact, recall=True)
        kind = self._random.choice(KINDS)
        return getattr(self, "_" + kind)(language)._replace(kind=kind)

    def _fact(self, name, value):
        self._facts[name] = value
        return value

    # --- facts the user states ---

    def _name(self, language):
        name = self._fact("name", self._random.choice(NAMES))
        if language == "fr":
            return Turn(self._pick(f"Je m'appelle {name}.", f"Mon nom est {name}."), f"Le nom est {name}.",
                        f"Enchantée, {name} !")
        return Turn(self._pick(f"My name is {name}.", f"I am called {name}.", f"Call me {name}."),
                    f"The name is {name}.", f"Nice to meet you, {name}!")

    def _color(self, language):
        color = self._fact("color", self._random.choice(COLOURS[language]))
        if language == "fr":
            return Turn(self._pick(f"Ma couleur préférée est le {color}.", f"J'aime le {color}."),
                        f"La couleur est le {color}.", f"Le {color} est une belle couleur.")
        return Turn(self._pick(f"My favorite color is {color}.", f"I like {color}."), f"The color is {color}.",
                    f"{color.capitalize()} is a lovely color.")

    def _word(self, language):
        word = self._fact("word", self._random.choice(SECRET_WORDS))
        if language == "fr":
            return Turn(
                self._pick(f"Le mot secret est {word}. Retiens-le.", f"Souviens-toi du mot secret : {word}."),
                f"Le mot secret est {word}.", "Je m'en souviendrai.")
        return Turn(
            self._pick(f"The secret word is {word}. Remember it.", f"Please remember the secret word: {word}."),
            f"The secret word is {word}.", "I will remember it.")

    def _pet(self, language):
        pet = self._fact("pet", self._random.choice(ANIMALS[language]))
        if language == "fr":
            return Turn(f"J'ai un {pet}.", f"L'animal est un {pet}.", f"Un {pet} est un bon compagnon.")
        return Turn(f"I have a {pet}.", f"The pet is a {pet}.", f"A {pet} is a good companion.")

    def _fruit(self, language):
        fruit = self._fact("fruit", self._random.choice(FRUIT[language]))
        if language == "fr":
            return Turn(f"Mon fruit préféré : {fruit}.", f"Le fruit est {fruit}.", f"C'est noté : {fruit}.")
        return Turn(f"My favorite fruit is the {fruit}.", f"The fruit is {fruit}.", f"Noted: {fruit}.")

    def _num(self, language):
        number = self._fact("num", str(self._random.randint(10, 99)))
        if language == "fr":
            return Turn(f"Mon numéro est le {number}.", f"Le numéro est {number}.", f"Je note le numéro {number}.")
        return Turn(f"My number is {number}.", f"The number is {number}.", f"I noted the number {number}.")

    # --- and asks for later ---

    def _question(self, language, fact):
        # Both wordings are drawn for every question, whichever is asked.
        if language == "fr":
            ask_name = self._pick("Comment je m'appelle ?", "Quel est mon nom ?")
            ask_word = self._pick("Quel est le mot secret ?", "Donne-moi le mot secret.")
        else:
            ask_name = self._pick("What is my name?", "Who am I?")
            ask_word = self._pick("What is the secret word?", "Tell me the secret word.")
        value = self._facts[fact]
        questions = {
            "fr": {
                "name": Turn(ask_name, f"Le nom est {value}.", f"Vous vous appelez {value}."),
                "color": Turn("Quelle est ma couleur préférée ?", f"La couleur est le {value}.",
                              f"Votre couleur préférée est le {value}."),
                "word": Turn(ask_word, f"Le mot secret est {value}.", f"Le mot secret est {value}."),
                "pet": Turn("Quel animal ai-je ?", f"L'animal est un {value}.", f"Vous avez un {value}."),
                "fruit": Turn("Quel est mon fruit préféré ?", f"Le fruit est {value}.",
                              f"Votre fruit préféré : {value}."),
                "num": Turn("Quel est mon numéro ?", f"Le numéro est {value}.", f"Votre numéro est le {value}."),
            },
            "en": {
                "name": Turn(ask_name, f"The name is {value}.", f"Your name is {value}."),
                "color": Turn("What is my favorite color?", f"The color is {value}.",
                              f"Your favorite color is {value}."),
                "word": Turn(ask_word, f"The secret word is {value}.", f"The secret word is {value}."),
                "pet": Turn("Which pet do I have?", f"The pet is a {value}.", f"You have a {value}."),
                "fruit": Turn("What is my favorite fruit?", f"The fruit is {value}.",
                              f"Your favorite fruit is the {value}."),
                "num": Turn("What is my number?", f"The number is {value}.", f"Your number is {value}."),
            },
        }
        return questions[language][fact]

    # --- sums ---

    def _sum(self, language, text, result, english_wordings=("What is {}?",)):
        solved = f"{text} = {result}."
        if language == "fr":
            return Turn(f"Combien font {text} ?", solved, solved)
        wording = self._pick(*english_wordings) if len(english_wordings) > 1 else english_wordings[0]
        return Turn(wording.format(text), solved, solved)

    def _add(self, language):
        a, b = self._random.randint(0, 20), self._random.randint(0, 20)
        return self._sum(language, f"{a} + {b}", a + b, ("What is {}?", "Compute {}."))

    def _sub(self, language):
        a = self._random.randint(0, 20)
        b = self._random.randint(0, a)
        return self._sum(language, f"{a} - {b}", a - b)

    def _mul(self, language):
        a, b = self._random.randint(0, 10), self._random.randint(0, 10)
        return self._sum(language, f"{a} x {b}", a * b)

    # --- general knowledge ---

    def _cap(self, language):
        place = self._random.choice(CAPITALS)
        if language == "fr":
            return Turn(f"Quelle est la capitale de {place.country_fr} ?", f"La capitale est {place.capital_fr}.",
                        f"La capitale de {place.country_fr} est {place.capital_fr}.")
        return Turn(f"What is the capital of {place.country}?", f"The capital is {place.capital}.",
                    f"The capital of {place.country} is {place.capital}.")

    def _opp(self, language):
        word, opposite = self._random.choice(OPPOSITES[language])
        if self._random.random() < 0.5:
            word, opposite = opposite, word
        if language == "fr":
            return Turn(f"Quel est le contraire de {word} ?", f"Le contraire est {opposite}.",
                        f"Le contraire de {word} est {opposite}.")
        return Turn(f"What is the opposite of {word}?", f"The opposite is {opposite}.",
                    f"The opposite of {word} is {opposite}.")

    def _next(self, language, cycle, question_en, question_fr):
        index = self._random.randrange(len(cycle))
        this, following = cycle[index], cycle[(index + 1) % len(cycle)]
        if language == "fr":
            return Turn(question_fr.format(this), f"Après {this} vient {following}.",
                        f"Après {this} vient {following}.")
        return Turn(question_en.format(this), f"After {this} comes {following}.", f"{following} comes after {this}.")

    def _day(self, language):
        return self._next(language, DAYS[language], "Which day comes after {}?", "Quel jour vient après {} ?")

    def _month(self, language):
        return self._next(language, MONTHS[language], "Which month comes after {}?", "Quel mois vient après {} ?")

    # --- following an instruction ---

    def _repeat(self, language):
        pool = SECRET_WORDS + COLOURS[language] + ANIMALS[language]
        words = " ".join(self._random.choice(pool) for _ in range(self._random.randint(2, 6)))
        if language == "fr":
            return Turn(f"Répète : {words}", "Je répète.", words)
        return Turn(f"Repeat after me: {words}", "I repeat the words.", words)

    def _count(self, language):
        first = self._random.randint(1, 15)
        last = first + self._random.randint(2, 9)
        numbers = ", ".join(map(str, range(first, last + 1))) + "."
        if language == "fr":
            return Turn(f"Compte de {first} à {last}.", f"De {first} à {last}.", numbers)
        return Turn(f"Count from {first} to {last}.", f"From {first} to {last}.", numbers)

    def _animals(self, language):
        count = self._random.randint(2, 5)
        seen = self._random.sample(ANIMALS[language], count)
        article, conjunction = ("un ", " et un ") if language == "fr" else ("a ", " and a ")
        listing = ", ".join(article + animal for animal in seen[:-1]) + conjunction + seen[-1]
        if language == "fr":
            return Turn(f"Je vois {listing}. Combien d'animaux ?", f"Il y en a {count}.", f"Il y a {count} animaux.")
        return Turn(f"I see {listing}. How many animals?", f"There are {count}.", f"There are {count} animals.")

    def _passage(self, language):
        text = self._random.choice(self._passages[language])[:LONGEST_PASSAGE]
        if language == "fr":
            return Turn(f"Lis ceci : {text}", "La personne me donne un texte.", "J'ai lu le texte.")
        return Turn(f"Read this: {text}", "The user gives me a text.", "I have read the text.")

    # --- small talk ---

    def _greet(self, language):
        if language == "fr":
            return Turn(self._pick("Bonjour !", "Salut !", "Bonjour Kazeia."), "La personne me salue.",
                        self._pick("Bonjour ! Comment puis-je vous aider ?"))
        return Turn(self._pick("Hello!", "Hi!", "Good morning.", "Hello Kazeia."), "The user greets me.",
                    "Hello! How can I help you?")

    def _stress(self, language):
        if language == "fr":
            return Turn(self._pick("Je suis stressé.", "Je me sens anxieuse.", "Je suis inquiet."),
                        "La personne a besoin de calme.",
                        "Je comprends. Inspirez lentement, comptez jusqu'à quatre, puis expirez.")
        return Turn(self._pick("I feel stressed.", "I am anxious.", "I am worried."), "The user needs calm.",
                    "I understand. Breathe in slowly, count to four, then breathe out.")

    def _sleep(self, language):
        if language == "fr":
            return Turn(self._pick("Je n'arrive pas à dormir.", "Je dors mal."), "La personne dort mal.",
                        "Éteignez l'écran, baissez la lumière et respirez doucement.")
        return Turn(self._pick("I cannot sleep.", "I sleep badly."), "The user sleeps badly.",
                    "Turn off the screen, dim the light and breathe gently.")

    def _thanks(self, language):
        if language == "fr":
            return Turn(self._pick("Merci.", "Merci beaucoup !"), "La personne me remercie.", "Avec plaisir.")
        return Turn(self._pick("Thank you.", "Thanks a lot!"), "The user thanks me.", "You are welcome.")

    def _who(self, language):
        if language == "fr":
            return Turn(self._pick("Qui es-tu ?", "Comment t'appelles-tu ?"), "Je suis Kazeia.",
                        "Je suis Kazeia, une assistante locale.")
        return Turn(self._pick("Who are you?", "What is your name?"), "I am Kazeia.",
                    "I am Kazeia, a local assistant.")
