"""A grammar of short English stories, for the demo model.

Everything comes from word lists (demo_story.py), plots (demo_plots.py) and a seed; there is no other text. A story is a
hero, a friend, an elder, a place, a thing and a weather, drawn at random, and one of the plots, each of which branches.
Most sentences have several wordings and many are optional, so that a model cannot learn continuations by rote: it must
remember the names, the thing and the state of the plot.

    python tools/demo_corpus.py --stories 3 --seed 1     prints three stories
"""

import argparse
import random

from demo_plots import PLOTS
from demo_story import Story


def request_line(s: Story) -> str:
    """Returns the request of a reader. A third of the stories start with such a line."""
    pairs = ["Tell me a story about {hero_a} and {friend_a}.", "Tell me a story about {hero} and {friend}.",
             "Please tell me a story about {hero} and {hero_his} friend {friend}."]
    return s.rng.choice([
        "Tell me a story about {hero_a}.", "Tell me a story about {hero_a} named {hero}.",
        "Write a story about {hero_a} named {hero}.", "Write a story about {hero}.",
        *pairs * s.has_met_friend(),
    ]).format(**s.words)


def make_story(rng: random.Random, style: type = Story) -> str:
    story = style(rng)
    rng.choice(PLOTS)(story)
    text = story.text()
    return request_line(story) + "\n\n" + text if rng.random() < 0.33 else text


def make_corpus(count: int, seed: int, style: type = Story) -> list:
    """Returns `count` different stories of a style, which is Story or derived from it. Equal seeds give equal stories."""
    rng = random.Random(seed)
    stories = {}
    while len(stories) < count:
        stories[make_story(rng, style)] = None
    return list(stories)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints stories of the demo model's training grammar.")
    parser.add_argument("--stories", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("\n\n---\n\n".join(make_corpus(args.stories, args.seed)))


if __name__ == "__main__":
    main()
