"""The words that the dialogues are made of. Their order is part of what a seed determines."""

from typing import NamedTuple

NAMES = (
    "Alice Bruno Clara David Emma Felix Gina Hugo Iris Jules Karim Lena Marco Nadia Oscar Paula Quentin Rosa Simon "
    "Tina Ugo Vera Walid Yara Zoe Louis Manon Adam Ines Theo"
).split()

COLOURS = {
    "en": "red blue green yellow black white orange purple pink brown grey".split(),
    "fr": "rouge bleu vert jaune noir blanc orange violet rose marron gris".split(),
}

ANIMALS = {
    "en": "cat dog bird horse fish rabbit cow sheep mouse duck frog lion".split(),
    "fr": "chat chien oiseau cheval poisson lapin mouton canard lion tigre renard loup".split(),
}

FRUIT = {
    "en": "apple pear banana cherry lemon melon peach plum grape fig".split(),
    "fr": "pomme poire banane cerise citron melon prune figue raisin orange".split(),
}

SECRET_WORDS = (
    "abracadabra lantern tornado pepper marble cobalt velvet saffron granite comet orchid pirate bamboo violin magnet "
    "tulip anchor falcon ginger harbor jasmine kettle ladder meadow nectar opal pebble quartz raven silver timber "
    "umbra walnut zephyr bonsai cactus domino ember fossil glacier"
).split()

DAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche".split(),
}

MONTHS = {
    "en": "January February March April May June July August September October November December".split(),
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
}

# Both directions are asked.
OPPOSITES = {
    "en": [
        ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("day", "night"), ("up", "down"), ("happy", "sad"),
        ("open", "closed"), ("full", "empty"), ("young", "old"), ("light", "dark"), ("left", "right"),
        ("rich", "poor"),
    ],
    "fr": [
        ("chaud", "froid"), ("grand", "petit"), ("rapide", "lent"), ("jour", "nuit"), ("haut", "bas"),
        ("content", "triste"), ("ouvert", "fermé"), ("plein", "vide"), ("jeune", "vieux"), ("clair", "sombre"),
        ("gauche", "droite"), ("riche", "pauvre"),
    ],
}


class Capital(NamedTuple):
    country: str
    capital: str
    country_fr: str  # with its article
    capital_fr: str


CAPITALS = [
    Capital("France", "Paris", "la France", "Paris"),
    Capital("Italy", "Rome", "l'Italie", "Rome"),
    Capital("Spain", "Madrid", "l'Espagne", "Madrid"),
    Capital("Germany", "Berlin", "l'Allemagne", "Berlin"),
    Capital("Portugal", "Lisbon", "le Portugal", "Lisbonne"),
    Capital("Japan", "Tokyo", "le Japon", "Tokyo"),
    Capital("Egypt", "Cairo", "l'Égypte", "Le Caire"),
    Capital("Canada", "Ottawa", "le Canada", "Ottawa"),
    Capital("Greece", "Athens", "la Grèce", "Athènes"),
    Capital("Austria", "Vienna", "l'Autriche", "Vienne"),
    Capital("Belgium", "Brussels", "la Belgique", "Bruxelles"),
    Capital("Norway", "Oslo", "la Norvège", "Oslo"),
    Capital("Poland", "Warsaw", "la Pologne", "Varsovie"),
    Capital("Ireland", "Dublin", "l'Irlande", "Dublin"),
    Capital("Cuba", "Havana", "Cuba", "La Havane"),
    Capital("Peru", "Lima", "le Pérou", "Lima"),
    Capital("Kenya", "Nairobi", "le Kenya", "Nairobi"),
    Capital("India", "New Delhi", "l'Inde", "New Delhi"),
    Capital("Hungary", "Budapest", "la Hongrie", "Budapest"),
    Capital("Sweden", "Stockholm", "la Suède", "Stockholm"),
]

SYSTEM_PROMPTS = {
    "en": ["You are Kazeia, a calm assistant.", "You are Kazeia. Answer briefly.", "You are a helpful assistant."],
    "fr": ["Tu es Kazeia, une assistante calme.", "Tu es Kazeia. Réponds brièvement.", "Tu es une assistante utile."],
}
