"""What was found: rows that are written as soon as they are there."""

import json
import os
import threading
import time

import judge


# With what they say of a row: nothing is a figure that nobody judges, and `missing` that
# something is not here or that no time was left for it.
VERDICTS = ("", "right", "missing", "WRONG", "FAILED")


class Results:
    def __init__(self, out, facts, start, budget):
        self.out, self.facts, self.start, self.budget = out, facts, start, budget
        self.rows, self.lock = [], threading.Lock()
        for name, value in facts.items():
            print(f"{name}: {value}", flush=True)
        self.save()

    def left(self):
        """Seconds of the budget."""
        return self.budget - (time.monotonic() - self.start)

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", flush=True)

    def add(self, part, what, found, verdict="", target="", **figures):
        """A row: `found` in words, `verdict` one of `VERDICTS`, whether a target holds as `judge` says
        it, and figures for whoever reads the document."""
        assert verdict in VERDICTS, verdict
        row = {"part": part, "what": what, "found": found, "verdict": verdict, "target": target, **figures}
        with self.lock:
            self.rows.append(row)
            self.say(f"{part}: {what}: {found} {verdict} {target}".rstrip())
            self.save()

    def save(self):
        document = {"facts": self.facts, "rows": self.rows}
        write_whole(self.out / "results.json", json.dumps(document, indent=1) + "\n")
        write_whole(self.out / "table.md", self.table())

    def table(self):
        lines = [f"{name}: {value}  " for name, value in self.facts.items()]
        lines += ["", "| part | what | found | | target |", "| --- | --- | --- | --- | --- |"]
        clean = lambda text: str(text).replace("|", "/").replace("\n", " ")
        for row in self.rows:
            cells = [clean(row[key]) for key in ("part", "what", "found", "verdict", "target")]
            lines.append("| " + " | ".join(cells) + " |")
        counts = [f"{self.count(verdict)} {verdict}" for verdict in VERDICTS if verdict]
        targets = [row["target"] for row in self.rows if row["target"]]
        lines += ["", f"{', '.join(counts)}. Of {len(targets)} targets: {judge.kept(targets)}."]
        return "\n".join(lines) + "\n"

    def count(self, verdict):
        return sum(row["verdict"] == verdict for row in self.rows)

    def is_right(self):
        return self.count("WRONG") + self.count("FAILED") == 0


def write_whole(path, text):
    """In place of what was there, and all of it or nothing, for who is stopped meanwhile."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    os.replace(beside, path)
