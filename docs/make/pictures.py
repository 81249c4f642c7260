"""Draws the pictures of the explanation. `python docs/make/pictures.py` writes them to docs/pictures."""

from pathlib import Path

from svg import Drawing

FOLDER = Path(__file__).resolve().parents[1] / "pictures"


def life() -> Drawing:
    d = Drawing(
        "life",
        760,
        430,
        "The life of a job",
        "A producer sends a message to the broker, which gives it to a worker. In one transaction the worker takes the "
        "fence, runs the handler and commits. If that fails, the job waits in the inbox, from which the relay sends it "
        "to the broker again, or it becomes a dead letter, which an operator replays into the inbox or discards. The "
        "message is acknowledged after the commit of whichever it is.",
    )
    d.box(10, 30, 110, 44, "producer", ".delay()")
    d.box(190, 30, 110, 44, "broker")
    d.box(370, 30, 120, 44, "worker", "checks the types")
    d.box(560, 12, 190, 150, kind="frame")
    d.say(655, 30, "one transaction", soft=True)
    d.box(580, 40, 150, 30, "fence")
    d.box(580, 80, 150, 30, "handler")
    d.box(580, 120, 150, 30, "COMMIT", kind="good")
    d.arrow((120, 52), (190, 52))
    d.arrow((300, 52), (370, 52))
    d.arrow((490, 52), (560, 52))
    d.arrow((560, 135), (245, 135), (245, 74))
    d.say(458, 128, "acknowledge: done", soft=True)
    d.box(370, 205, 120, 44, "decide", "policy, error")
    d.arrow((655, 162), (655, 227), (490, 227))
    d.say(575, 219, "rolled back", soft=True)
    d.arrow((370, 52 + 20), (350, 72), (350, 215), (370, 215))
    d.say(344, 190, "killed, refused", at="end", soft=True)
    d.box(130, 285, 190, 54, "inbox", "fence: waiting", kind="wait")
    d.box(540, 285, 190, 54, "dead letter", "fence: dead", kind="bad")
    d.arrow((430, 249), (430, 270), (225, 270), (225, 285))
    d.say(300, 264, "try again later", soft=True)
    d.arrow((430, 249), (430, 270), (635, 270), (635, 285))
    d.say(545, 264, "give up", soft=True)
    d.box(10, 200, 110, 44, "relay")
    d.arrow((130, 312), (65, 312), (65, 244))
    d.arrow((65, 200), (65, 110), (215, 110), (215, 74))
    d.say(140, 103, "when it is due", soft=True)
    d.arrow((540, 325), (320, 325))
    d.say(430, 317, "replay", soft=True)
    d.box(540, 380, 190, 36, "discarded, with a reason")
    d.arrow((635, 339), (635, 380))
    d.say(
        20, 400, "Each box with a colour is one commit; only then is the message acknowledged.", at="start", soft=True
    )
    return d


def race() -> Drawing:
    d = Drawing(
        "race",
        720,
        330,
        "Two copies of a job at the same moment",
        "Copy A inserts the fence and runs the handler. Copy B tries to insert the same fence and waits in PostgreSQL. "
        "A commits: its work and the fence are there. B then finds the fence done, changes nothing and is a duplicate. "
        "Both messages are acknowledged.",
    )
    for x, name in ((110, "copy A"), (360, "PostgreSQL"), (610, "copy B")):
        d.box(x - 60, 10, 120, 30, name)
        d.life(x, 40, 320)
    d.arrow((110, 70), (360, 70))
    d.say(235, 63, "INSERT fence", soft=True)
    d.arrow((610, 100), (360, 100))
    d.say(485, 93, "INSERT the same fence", soft=True)
    d.box(500, 115, 200, 84, "waits for A", "at most harness_fence_wait", kind="wait")
    d.box(18, 90, 184, 56, "handler", "writes through the session")
    d.arrow((110, 190), (360, 190))
    d.say(235, 183, "COMMIT", soft=True)
    d.box(300, 196, 120, 30, "fence: done", kind="good")
    d.arrow((360, 245), (610, 245))
    d.say(485, 238, "it is there already", soft=True)
    d.box(520, 258, 180, 44, "duplicate", "nothing runs; ack")
    d.box(30, 215, 160, 44, "completed", "ack")
    return d


def crash() -> Drawing:
    d = Drawing(
        "crash",
        760,
        250,
        "Where a process can die",
        "Before COMMIT, whatever is killed leaves nothing: the transaction is rolled back, the message was not "
        "acknowledged, and the job runs again. After COMMIT the effect and the fence are both there: the message that "
        "comes again is a duplicate.",
    )
    steps = ("message", "BEGIN", "fence", "handler", "COMMIT", "reply", "ack")
    for number, name in enumerate(steps):
        x = 10 + number * 107
        d.box(x, 30, 92, 40, name, kind="good" if name == "COMMIT" else "")
        if number:
            d.arrow((x - 15, 50), (x, 50))
    d.arrow((10, 95), (475, 95), head=False)
    d.arrow((10, 88), (10, 102), head=False)
    d.arrow((475, 88), (475, 102), head=False)
    d.box(10, 115, 465, 60, "killed here: nothing has stayed", "rolled back, not acknowledged; the job runs again")
    d.arrow((490, 95), (744, 95), head=False)
    d.arrow((490, 88), (490, 102), head=False)
    d.arrow((744, 88), (744, 102), head=False)
    d.box(490, 115, 254, 60, "killed here: all has stayed", "the next copy is a duplicate", kind="good")
    d.say(10, 205, "COMMIT itself has no middle. Where its answer is lost, the next copy asks the fence.", at="start")
    d.say(10, 228, "A job that kills its worker each time is dead after harness_max_deliveries.", at="start", soft=True)
    return d


def states() -> Drawing:
    d = Drawing(
        "states",
        720,
        270,
        "The states of a job's fence",
        "A job begins without a fence. Its first copy makes it done, waiting or dead. From waiting it becomes done, "
        "waiting once more, or dead. A replay takes it from dead to waiting. Done is never left, until the fence is "
        "pruned after its time.",
    )
    d.box(10, 110, 110, 44, "no fence", "never seen")
    d.box(290, 20, 130, 48, "done", kind="good")
    d.box(290, 110, 130, 48, "waiting", "in the inbox", kind="wait")
    d.box(290, 205, 130, 48, "dead", "has a letter", kind="bad")
    d.arrow((120, 120), (200, 120), (200, 44), (290, 44))
    d.say(192, 40, "it works", at="end", soft=True)
    d.arrow((120, 134), (290, 134))
    d.say(246, 127, "it fails", soft=True)
    d.arrow((120, 146), (200, 146), (200, 229), (290, 229))
    d.say(192, 225, "hopeless", at="end", soft=True)
    d.arrow((330, 110), (330, 68))
    d.say(322, 93, "it works", at="end", soft=True)
    d.arrow((330, 158), (330, 205))
    d.say(322, 187, "the last try", at="end", soft=True)
    d.arrow((380, 205), (380, 158))
    d.say(388, 187, "replay", at="start", soft=True)
    d.arrow((420, 124), (470, 124), (470, 146), (420, 146))
    d.say(480, 139, "fails again", at="start", soft=True)
    d.arrow((420, 44), (560, 44))
    d.box(560, 22, 150, 44, "pruned", "after processed_ttl")
    d.say(560, 95, "Nothing leaves done.", at="start")
    d.say(560, 115, "That is the promise.", at="start", soft=True)
    return d


def publisher() -> Drawing:
    d = Drawing(
        "publisher",
        720,
        250,
        "Who sends a retry",
        "In plain Celery a retry is a publish to the broker followed by an acknowledgement: a crash between the two "
        "sends it twice or, the other way round, loses it. Here the retry is a row, written in the transaction of the "
        "verdict; the message is acknowledged afterwards, and the relay sends the row when it is due.",
    )
    d.say(10, 25, "Plain Celery: two systems, no transaction over both", at="start")
    d.box(10, 40, 130, 40, "retry()")
    d.box(240, 40, 170, 40, "publish a new message")
    d.box(510, 40, 150, 40, "ack the old one")
    d.arrow((140, 60), (240, 60))
    d.arrow((410, 60), (510, 60))
    d.say(460, 100, "dies here: sent twice", soft=True)
    d.say(190, 100, "fails here: lost", soft=True)
    d.say(10, 150, "The harness: one transaction, then the ack; sending can be repeated", at="start")
    d.box(10, 165, 270, 44, "fence waiting + inbox row", "one COMMIT", kind="wait")
    d.box(350, 165, 90, 44, "ack")
    d.box(510, 165, 200, 44, "relay sends when due", "again, if unsure")
    d.arrow((280, 187), (350, 187))
    d.arrow((440, 187), (510, 187))
    d.say(395, 232, "dies here: a stale copy", soft=True)
    d.say(610, 232, "dies here: a late copy is stale", soft=True)
    return d


DRAWINGS = (life, race, crash, states, publisher)


def files() -> dict[str, str]:
    """File name and text of every picture."""
    return {f"{made.name}.svg": made.svg() for made in (draw() for draw in DRAWINGS)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
