"""The village's vocabulary: its people, places and things. What happens in the village is in `world`."""

SHE = ("Mia", "Ada", "Ivy", "Zoe")
HE = ("Ben", "Tom", "Leo", "Max")
NAMES = SHE + HE

PLACES = (
    "the mill",
    "the well",
    "the barn",
    "the bridge",
    "the market",
    "the fountain",
    "the harbour",
    "the schoolhouse",
)
THINGS = ("kite", "drum", "lamp", "rope", "bell", "flute", "book", "ball", "umbrella", "telescope")
COLOURS = ("red", "blue", "green", "white", "black", "yellow")
ELDERS = ("the baker", "the teacher", "the postman", "the fisherman")  # they only ask questions
CONTAINERS = ("the chest", "the barrel", "the basket", "the cupboard")
FEELINGS = ("happy", "sad", "proud", "tired", "cross", "curious")

COUNTABLES = {"egg": "eggs", "coin": "coins", "shell": "shells", "apple": "apples", "chestnut": "chestnuts"}
SINGULAR = {plural: singular for singular, plural in COUNTABLES.items()}
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def pronoun(name):
    """'she' or 'he', for a name of the village."""
    return "she" if name in SHE else "he"
