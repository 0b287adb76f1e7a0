"""The suite as rows of ../compare/ops.py, from the heads of programs/*.xh: COMPARE_SUITE=npbench makes them those of the engines there."""
import re
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
HEAD = re.compile(r"^(?:op|prog) (?P<name>\w+)\((?P<inputs>[^)]*)\) -> \((?P<outs>[^)]*)\)", re.M)
PARAMETER = re.compile(r"(?P<name>\w+): (?P<inout>inout )?(?P<type>\w+)(?:\[(?P<shape>[^\]]*)\])?(?P<const> const)?")
SIZES = re.compile(r"^# board: (.*)", re.M)


class Program:
    """What the text of a program says of it."""

    def __init__(self, path):
        text = path.read_text()
        self.name = path.stem
        head = next(m for m in HEAD.finditer(text) if m["name"] == self.name)
        self.parameters = [m.groupdict() for m in PARAMETER.finditer(head["inputs"])]
        self.outs = re.findall(r"\w+", head["outs"]) + [p["name"] + "_out" for p in self.parameters if p["inout"]]
        self.diff = [p["name"] for p in self.parameters if p["type"].startswith("f") and not p["const"]]
        self.sizes = {k: int(v) for k, v in (e.split("=") for e in SIZES.search(text)[1].split(","))}

    def shape(self, parameter):
        return tuple(eval(e, {}, self.sizes) for e in parameter["shape"].split(",")) if parameter["shape"] else ()


ALL = {path.stem: Program(path) for path in sorted(PROGRAMS.glob("*.xh"))}


def suite(Op):
    return {p.name: Op(p.name, {q["name"]: p.shape(q) for q in p.parameters}, tuple(p.diff), dict.fromkeys(p.outs), 0, 0, "", 0)
            for p in ALL.values()}
