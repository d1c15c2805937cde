"""The words of the demo model's stories, and a story while it is made: its characters, its words, its paragraphs."""

import random
from dataclasses import dataclass

BOY_NAMES = "Ben Tom Max Leo Sam Finn Jack Omar Noah Hugo Oscar Ravi".split()
GIRL_NAMES = "Mia Lily Anna Zoe Lucy Nora Ella Rosa Ruby Ivy Maya Clara".split()
ANIMAL_NAMES = "Pip Coco Bruno Daisy Dot Momo Olive Rusty Poppy Biscuit Fern Tiko".split()
ANIMALS = ("fox rabbit bear mouse cat dog duck owl frog squirrel hedgehog turtle goat lamb pony otter pig cow wolf "
           "lion monkey elephant penguin dragon robot").split()
TRAITS = "little small young brave kind shy clever curious cheerful quiet gentle funny".split()
PLACES = [
    ("the forest", "among the tall trees"), ("the park", "near the old bench"), ("the beach", "on the warm sand"),
    ("the lake", "by the clear water"), ("the meadow", "in the long grass"), ("the garden", "between the flowers"),
    ("the hill", "under the wide sky"), ("the river", "along the bank"), ("the farm", "behind the red barn"),
    ("the village", "in the narrow street"), ("the market", "between the stalls"),
    ("the old mill", "next to the wheel"),
]
SYLLABLES = "ba ko mi ta lu ro ne si da pa vi zo lo fa ri na gu te ma bo ki sa mo du le".split()
COLORS = "red blue green yellow white silver golden purple orange brown".split()
TOYS = "ball kite hat scarf drum boat book lantern basket bell cup bag".split()
FOODS = ["an apple", "a pear", "some bread", "a piece of cake", "some berries", "a carrot", "a cookie", "some cheese",
         "a warm bun", "some nuts"]
ELDERS = [("grandmother", "she"), ("grandfather", "he"), ("mother", "she"), ("father", "he"), ("aunt", "she"),
          ("uncle", "he")]
SPOTS = ["under the bridge", "behind a big rock", "in the bushes", "next to the well", "under the table",
         "inside a hollow log", "near the gate", "on top of the wall", "behind the door", "beside the path"]
FEARS = ["the dark", "deep water", "loud thunder", "high places", "big dogs", "the old cellar", "being alone"]
GAMES = ["hide and seek", "tag", "catch", "a counting game", "a guessing game"]
SKIES = ["The sun was shining.", "The sky was blue and clear.", "It was a warm day.", "A soft wind was blowing.",
         "White clouds moved slowly over the sky.", "It was a cold and bright morning.", "The birds were singing.",
         "There was still a little fog in the air.", "It had rained in the night and the grass was wet."]
SEEN = ["a butterfly with yellow wings", "three ducks in a row", "a snail on a leaf", "a spider in its web",
        "a tree full of birds", "a long line of ants", "a feather on the ground", "two bees on a flower",
        "a cloud that looked like a sheep", "a stone as round as an egg"]
BREAKABLE = "kite drum boat lantern basket bell cup".split()
LESSONS = {
    "friend": ["a friend makes every day better", "two can do more than one", "it is never too late to find a friend"],
    "help": ["it is good to ask for help", "small hands can do big things", "kind words cost nothing"],
    "share": ["sharing makes people happy", "the best things are there for everyone",
              "a gift is best when it is shared"],
    "brave": ["being brave does not mean having no fear", "fear gets smaller when you look at it"],
    "truth": ["it is best to tell the truth", "a lie is heavy and the truth is light"],
    "time": ["good things need time", "it is worth it to wait", "one should not give up too soon"],
}


@dataclass
class Character:
    name: str
    kind: str  # "boy", "girl" or an animal
    trait: str
    female: bool

    def pronouns(self, prefix: str) -> dict:
        he, him, his = ("she", "her", "her") if self.female else ("he", "him", "his")
        return {prefix: self.name, prefix + "_he": he, prefix + "_him": him, prefix + "_his": his,
                prefix + "_He": he.capitalize(), prefix + "_His": his.capitalize(), prefix + "_kind": self.kind,
                prefix + "_a": f"{article(self.trait)} {self.trait} {self.kind}"}


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


class Story:
    """Draws the parts of one story, then collects its paragraphs."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.hero = self._character(set())
        self.friend = self._character({self.hero.name, self.hero.kind})
        elder, elder_he = rng.choice(ELDERS)
        place, around = rng.choice(PLACES)
        color, toy = rng.choice(COLORS), rng.choice(TOYS)
        self.words = {
            **self.hero.pronouns("hero"), **self.friend.pronouns("friend"), "elder": elder, "elder_he": elder_he,
            "elder_He": elder_he.capitalize(), "place": place, "around": around, "thing": f"{color} {toy}", "toy": toy,
            "a_thing": f"{article(color)} {color} {toy}", "food": rng.choice(FOODS), "fear": rng.choice(FEARS),
            "game": rng.choice(GAMES), "seen": "", "lesson": "",
            "Place": place[0].upper() + place[1:],
        }
        first, second, third = rng.sample(SPOTS, 3)
        self.words.update(spot=first, spot2=second, spot3=third)
        self.sights = rng.sample(SEEN, len(SEEN))  # each {seen} uses up one
        self.paragraphs = [[]]

    def _name(self, known: list) -> str:
        """Returns mostly a known name, sometimes a made-up one, so that the model continues with any name of a
        prompt."""
        if self.rng.random() < 0.8:
            return self.rng.choice(known)
        syllables = self.rng.sample(SYLLABLES, self.rng.choice([2, 2, 3]))
        return "".join(syllables).capitalize() + self.rng.choice(["", "", "n", "r", "x", "l", "s"])

    def _character(self, taken: set) -> Character:
        rng = self.rng
        while True:
            group = rng.randrange(4)
            if group == 0:
                made = Character(self._name(BOY_NAMES), "boy", rng.choice(TRAITS), False)
            elif group == 1:
                made = Character(self._name(GIRL_NAMES), "girl", rng.choice(TRAITS), True)
            else:
                made = Character(self._name(ANIMAL_NAMES), rng.choice(ANIMALS), rng.choice(TRAITS), rng.random() < 0.5)
            if made.name not in taken and made.kind not in taken:
                return made

    def say(self, *wordings: str) -> None:
        """Adds one of the wordings, with its fields filled in."""
        wording = self.rng.choice(wordings)
        if "{seen}" in wording:
            self.words["seen"] = self.sights.pop()
        self.paragraphs[-1].append(wording.format(**self.words))

    def maybe(self, chance: float, *wordings: str) -> None:
        if self.chance(chance):
            self.say(*wordings)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def paragraph(self) -> None:
        if self.paragraphs[-1]:
            self.paragraphs.append([])

    def has_met_friend(self) -> bool:
        return any(self.friend.name in sentence for sentences in self.paragraphs for sentence in sentences)

    def with_breakable_thing(self) -> None:
        color, toy = self.rng.choice(COLORS), self.rng.choice(BREAKABLE)
        self.words.update(thing=f"{color} {toy}", a_thing=f"{article(color)} {color} {toy}", toy=toy)

    def text(self) -> str:
        return "\n\n".join(" ".join(sentences) for sentences in self.paragraphs if sentences)
