"""Lists of passes that `roundelay check` refuses, one fault each, for benches/pipelining.py."""

import re

# A step that both take: two devices, two stages, four micro-batches.
GOOD = """\
0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3
1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3
"""
HALVES = re.sub(r"1B(\d)", r"1I\1,1W\1", GOOD)
FIRST, SECOND = GOOD.splitlines(keepends=True)

FAULTS = [
    ("backward before forward", GOOD.replace("1F0,1B0", "1B0,1F0")),
    ("backward pass missing", GOOD.replace(",1B3", "")),
    ("micro-batch missing on a stage", GOOD.replace(",1F3,1B3", "")),
    ("W before I", HALVES.replace("1I0,1W0", "1W0,1I0")),
    ("I without W", HALVES.replace(",1W2", "")),
    # PyTorch takes both kinds on one stage; a stage of Roundelay has one kind of backward pass.
    ("whole and split on a stage", HALVES.replace("1I2,1W2", "1B2")),
    ("stage on two devices", f"{FIRST.rstrip()},1F3,1B3\n{SECOND.replace(',1F3,1B3', '')}"),
    ("devices wait for each other", FIRST + "1F3,1B3,1F2,1B2,1F1,1B1,1F0,1B0\n"),
    ("stage out of range", GOOD.replace("1F1", "9F1")),
    ("micro-batch out of range", GOOD.replace("1F3,1B3", "1F7,1B7")),
    ("trailing text 1F0xyz", GOOD.replace("1F0", "1F0xyz")),
    ("trailing text 1FOO", GOOD.replace("1F0", "1FOO")),
    ("sign 1F-1", GOOD.replace("1F1", "1F-1")),
    ("trailing text 1B3ATCH", GOOD.replace("1B3", "1B3ATCH")),
    ("word 1BATCH3", GOOD.replace("1B3", "1BATCH3")),
    ("forward pass twice", GOOD.replace("1F1", "1F1,1F1")),
    ("line too many", GOOD + SECOND),
    ("blank line", FIRST + "\n" + SECOND),
    ("comment line", "# by hand\n" + GOOD),
    ("header line", "device 0,device 1\n" + GOOD),
    ("communication", GOOD.replace("0F0,", "0F0,0SEND_F0,")),
]
