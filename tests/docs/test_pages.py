#!/usr/bin/env python3
"""test_pages.py BUILD: what docs/tour.md and docs/howto.md tell somebody to do is done, with the installed tree: below each heading of howto.md, and all
through tour.md, blocks under the name of a file (`main.cpp`:) are written to a folder, blocks of commands (sh) are executed there, and the block of text
that follows has, in order, lines of what the last commands printed. Python is run by tests/python/test_docs.py."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
BLOCK = re.compile(r"(?:`([\w.]+)`:\n\n)?^```(\w+)( error)?\n(.*?)^```$", re.M | re.S)


def run(script, folder, prefix):
    environment = {**os.environ, "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}", "CMAKE_PREFIX_PATH": str(prefix), "CXXFLAGS": "-O0"}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"status {done.returncode} of\n{script}\n{done.stdout}")
    return done.stdout


def compare(shown, said, where):
    lines = iter(said.splitlines())
    for line in shown.splitlines():
        if line.strip() and line not in lines:
            sys.exit(f"{where}: what is printed has no line (behind those before it)\n{line}\nit is\n{said}")


def follow(text, where, prefix):
    """Number of blocks of commands."""
    commands, said = 0, None
    with tempfile.TemporaryDirectory() as folder:
        for name, language, error, body in BLOCK.findall(text):
            if language == "xh" and not error and not name:  # named in the sentence before
                name = re.findall(r"`(\w+\.xh)`:?\s*$", text[:text.index(body)].rsplit("```", 1)[0])[0]
            if name:
                pathlib.Path(folder, name).write_text(body)
            elif language == "sh":
                said = run(body, folder, prefix)
                commands += 1
            elif language == "text":
                compare(body, said, where)
    return commands


def main():
    with tempfile.TemporaryDirectory() as temporary:
        prefix = pathlib.Path(temporary)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        assert follow((ROOT / "docs/tour.md").read_text(), "docs/tour.md", prefix) >= 5
        sections = [s for s in re.split(r"^## ", (ROOT / "docs/howto.md").read_text(), flags=re.M) if "```sh" in s]
        assert len(sections) >= 3
        for section in sections:
            follow(section, f"docs/howto.md, {section.splitlines()[0]}", prefix)


main()
