"""stage.py XHAT FOLDER: lays out in FOLDER/pages what the site consists of, as Markdown at the paths of the repository, so that links between pages
lead where they lead there. Starting from the pages of mkdocs.yml it follows links: to other pages, to sources, which become pages with their text,
and to folders, which become lists. The reference is made anew (reference.py). docs/site/build runs this."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import reference

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".inc": "cpp", ".def": "cpp", ".xh": "xh", ".py": "python", ".cmake": "cmake", ".sh": "sh", ".js": "js", ".json": "json"}


def pages_of_site():
    """Paths that mkdocs.yml names."""
    return re.findall(r"[\w/.]+\.md", (HERE / "mkdocs.yml").read_text().split("\nnav:")[1])


def outside_code(text, change):
    """The page with `change` applied to what is neither fenced nor between backticks, line by line."""
    out, fenced = [], False
    for line in text.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
            line = re.sub(r"^```xh error$", "```xh", line)
        elif not fenced and not line.startswith("    "):
            parts = line.split("`")
            parts[::2] = [change(p) for p in parts[::2]]
            if line.startswith("|"):  # in the code of a table GitHub wants \| where others want |
                parts[1::2] = [p.replace("\\|", "|") for p in parts[1::2]]
            line = "`".join(parts)
        out.append(line)
    return "\n".join(out)


class Staged:
    def __init__(self, folder):
        self.folder, self.waiting, self.done = folder, [], set()

    def write(self, page, text):
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page_for(self, target):
        """The page that shows this file or folder of the repository."""
        if (ROOT / target).is_dir():
            target = os.path.normpath(os.path.join(target, "README.md")) if (ROOT / target / "README.md").exists() else target + "/index.md"
        elif not target.endswith(".md"):
            target += ".md"
        if target not in self.done:
            self.done.add(target)
            self.waiting.append(target)
        return target

    def link(self, page, target):
        path, hash_sign, anchor = target.partition("#")
        if "://" in target or not path:
            return target
        wanted = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if wanted.startswith(".."):
            raise SystemExit(f"{page}: the link {target} leaves the repository")
        shown = self.page_for(wanted)
        return os.path.relpath(shown, os.path.dirname(page) or ".") + hash_sign + anchor

    def stage(self, page):
        source = ROOT / page
        if source.exists():
            self.write(page, outside_code(source.read_text(), lambda part: LINK.sub(lambda m: m[1] + self.link(page, m[2]) + m[3], part)))
        elif page.endswith("/index.md"):
            folder = source.parent
            files = sorted(f"{p.name}/" if p.is_dir() else p.name for p in folder.iterdir() if not p.name.startswith((".", "__")))
            lines = [f"- [{name}]({self.link(page, os.path.relpath(folder / name, ROOT / os.path.dirname(page)))})" if not name.endswith("/") else f"- {name}"
                     for name in files]
            self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# {page.removesuffix('/index.md')}\n\n" + "\n".join(lines) + "\n")
        else:
            original = ROOT / page.removesuffix(".md")
            text = original.read_text()
            fence = "`" * (3 + max((len(m) for m in re.findall(r"^`{3,}", text, re.M)), default=0))
            language = LANGUAGES.get(original.suffix, "cmake" if original.name == "CMakeLists.txt" else "text")
            self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# {page.removesuffix('.md')}\n\n{fence}{language}\n{text}{fence}\n")


def main():
    tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder / "pages", ignore_errors=True)
    staged = Staged(folder / "pages")
    made = reference.pages(lambda *arguments: subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout)
    for page, text in made.items():
        staged.done.add(page)
        staged.write(page, text)
    for page in pages_of_site():
        staged.page_for(page)
    while staged.waiting:
        staged.stage(staged.waiting.pop())
    assets = folder / "pages" / "assets"
    assets.mkdir()
    for name in ("iframe-worker.js", "site.css"):
        shutil.copy(HERE / name, assets)
    for name in ("mkdocs.yml", "hooks.py"):
        shutil.copy(HERE / name, folder)


if __name__ == "__main__":
    main()
