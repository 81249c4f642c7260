"""Put pip into a virtual environment that was made without it (Debian's python3 has no ensurepip).

Usage: PYTHON-OF-THE-ENVIRONMENT .ci/get_pip.py. Standard library only. PIP_INDEX_URL names the index;
the file's digest is checked against it.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

JSON = "application/vnd.pypi.simple.v1+json"
RELEASE = re.compile(r"pip-(\d+(?:\.\d+)*)-py3-none-any\.whl")


def fetch(url: str, accept: str = "*/*") -> bytes:
    """The body of a page. Raises OSError."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as response:
        body: bytes = response.read()
    return body


def newest(index: str) -> tuple[str, str, str]:
    """File name, URL and sha256 of the newest release of pip."""
    page = index.rstrip("/") + "/pip/"
    found = {}
    for file in json.loads(fetch(page, JSON))["files"]:
        if (name := RELEASE.fullmatch(file["filename"])) and not file.get("yanked"):
            found[tuple(map(int, name[1].split(".")))] = file
    file = found[max(found)]
    return file["filename"], urllib.parse.urljoin(page, file["url"]), file["hashes"]["sha256"]


def main() -> None:
    """Download pip and let it install itself."""
    index = os.environ.get("PIP_INDEX_URL")
    if not index:
        sys.exit("setup: PIP_INDEX_URL is not set, so there is no index to get pip from")
    name, url, digest = newest(index)
    wheel = fetch(url)
    if hashlib.sha256(wheel).hexdigest() != digest:
        sys.exit(f"{url} is not what the index says it is")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(wheel)
        subprocess.run([sys.executable, f"{path}/pip", "install", "--quiet", "--no-index", str(path)], check=True)


if __name__ == "__main__":
    main()
