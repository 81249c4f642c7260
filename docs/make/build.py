"""Builds the site: `python docs/make/build.py` writes `site/`, strictly and without network.

--prepare      only lay out the sources in build/docs: pages, reference pages made of the code, inlined pictures
--serve PORT   build, then serve site/ on 127.0.0.1
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pictures
import reference

ROOT = Path(__file__).resolve().parents[2]
DOCS, LAID, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "site"
PICTURE = re.compile(r"^!\[[^\]]*\]\((?:\.\./)*pictures/(\w+\.svg)\)$", re.M)


def prepare() -> None:
    """Lay out what the site is built from."""
    shutil.rmtree(LAID, ignore_errors=True)
    shutil.copytree(DOCS, LAID, ignore=shutil.ignore_patterns("make", "__pycache__"))
    for path, text in reference.pages().items():
        (LAID / path).parent.mkdir(parents=True, exist_ok=True)
        (LAID / path).write_text(text, encoding="utf-8")
    drawn = pictures.files()
    for page in LAID.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(PICTURE.sub(lambda found: _inline(drawn[found[1]]), text), encoding="utf-8")
    shutil.rmtree(LAID / "pictures", ignore_errors=True)


def _inline(svg: str) -> str:
    """A picture inside of the page takes the page's colours, whatever the reader's system has."""
    return f"<div>\n{svg}</div>"


def build() -> None:
    """The strict build: a broken link or a reference to a name that is not there ends it."""
    prepare()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, check=False)
    if done.returncode:
        raise SystemExit("docs: the build found faults, see above")
    if not (SITE / "index.html").exists():
        raise SystemExit("docs: the build has made no site/index.html")


def serve(port: int) -> None:
    """Serve site/ until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"docs: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Builds the documentation.")
    parser.add_argument("--prepare", action="store_true", help="only lay out build/docs")
    parser.add_argument("--serve", type=int, metavar="PORT", help="build, then serve on 127.0.0.1")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare()
    else:
        build()
    if arguments.serve:
        serve(arguments.serve)
