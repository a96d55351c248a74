"""A hook of mkdocs: links between docs/ and the rest of the repository lead somewhere on the built site as well.

The files outside docs/ that pages link to (README, notebooks, notes of origin) become part of the site, under the paths
that they have in the repository. Notebooks become pages. README.md changes its name, since mkdocs would take it for the
home page.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HOME = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)\s#])")
DOCS = "docs/"
RENAMED = {"README.md": "readme.md"}
NOTEBOOK = ".ipynb"


def repository_path(page: str) -> str:
    """Where a page of the site comes from."""
    known = {site_path(path): path for path in RENAMED}
    candidates = (known.get(page, page), DOCS + page, page.removesuffix(".md") + NOTEBOOK)
    return next(path for path in candidates if (HOME / path).is_file())


def site_path(path: str) -> str:
    """Where a file of the repository goes on the site."""
    if path.endswith(NOTEBOOK):
        return path.removesuffix(NOTEBOOK) + ".md"
    return RENAMED.get(path, path.removeprefix(DOCS))


def target_of(link: str, page: str) -> str:
    """The path in the repository that a link on a page means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(page)), link))


def on_files(files: Files, config: Any) -> Files:
    """Adds the files outside docs/ that pages link to, and those that these link to."""
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for _, link in LINK.findall(page.content_string):
            path = target_of(link, page.src_uri)
            if path.startswith((DOCS, "../")) or not (HOME / path).is_file():
                continue
            if files.get_file_from_path(site_path(path)) is None:
                added = _generated(path, config)
                files.append(added)
                if site_path(path).endswith(".md"):
                    pages.append(added)
    return files


def _generated(path: str, config: Any) -> File:
    if path.endswith(NOTEBOOK):
        return File.generated(config, site_path(path), content=notebook_page(HOME / path))
    return File.generated(config, site_path(path), abs_src_path=str(HOME / path))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites links across the border of docs/ to where their targets are on the site."""
    here = page.file.src_uri

    def relinked(match: re.Match[str]) -> str:
        path = target_of(match[2], here)
        stays = repository_path(here).startswith(DOCS) and path.startswith(DOCS)
        if stays or not (HOME / path).is_file():
            return match[0]
        return match[1] + posixpath.relpath(site_path(path), posixpath.dirname(here) or ".")

    return LINK.sub(relinked, markdown)


def notebook_page(notebook: Path) -> str:
    """A notebook with its outputs as Markdown."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    """The richest form of an output that a page can show: picture, table, text."""
    data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<img alt="" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # In one line: Markdown would take what is indented for code.
        table = "".join(line.strip() for line in data["text/html"].splitlines())
        return f"<div>{table}</div>"
    return f"```text\n{data.get('text/plain') or ''.join(output.get('text', []))}\n```"
