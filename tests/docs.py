"""Write the generated parts of README.md: what commands print, and their help.

A part looks like this, and everything between the fences is replaced:

    <!-- run: agentkv-trace mrc trace.parquet -->
    ```text
    ```

Commands run one after the other in one folder that holds the sample traces.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

REPO = Path(__file__).parents[1]
README = REPO / "README.md"
_PART = re.compile(r"(<!-- run: (?P<command>.*?) -->\n```text\n).*?(?=```)", re.DOTALL)


def render(text: str) -> str:
    """Return the text of a page with its generated parts made anew."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "sample_traces").symlink_to(REPO / "sample_traces")
        return _PART.sub(lambda part: part[1] + _run(part["command"], Path(folder)), text)


def _run(command: str, folder: Path) -> str:
    words = shlex.split(command)
    if words[0] != "agentkv-trace":
        raise ValueError(f"not a command of ours: {command}")
    env = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "COLUMNS": "80",
        "TERM": "dumb",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": str(REPO),
    }
    done = subprocess.run(
        [sys.executable, "-m", "agentkv_trace", *words[1:]],
        cwd=folder,
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.stdout.decode()


if __name__ == "__main__":
    README.write_text(render(README.read_text(encoding="utf-8")), encoding="utf-8")
