"""Builds the site from the pages in this folder, and serves it on this machine.

    python docs/make_site.py                    builds the site in build/site and serves it
    python docs/make_site.py --build [FOLDER]   only builds it

Needs the extra `docs`. Warnings, such as of a link to nowhere, are errors.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sphinx.cmd.build import build_main

DOCS = Path(__file__).parent
SITE = DOCS.parent / "build" / "site"
PORT = 8000


def main() -> int:
    """Returns the exit status."""
    only_build = "--build" in sys.argv[1:2]
    site = (sys.argv[2:] or [str(SITE)])[0]
    failed = build_main(["-q", "-W", "--keep-going", "-b", "html", str(DOCS), site])
    if failed or only_build:
        return failed
    handler = partial(SimpleHTTPRequestHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        print(f"http://localhost:{PORT} (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
