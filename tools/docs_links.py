"""A hook of mkdocs: links between docs/ and the rest of the repository lead somewhere on the built site as well.

The files outside docs/ that pages link to (README, notebooks, notes of origin) become part of the site, under the paths
that they have in the repository. Only README.md changes its name, since mkdocs would take it for the home page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HOME = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)\s#])")
DOCS = "docs/"
README, README_PAGE = "README.md", "readme.md"


def repository_path(page: str) -> str:
    """Where a page of the site comes from."""
    if (HOME / DOCS / page).is_file():
        return DOCS + page
    return README if page == README_PAGE else page


def site_path(path: str) -> str:
    """Where a file of the repository goes on the site."""
    return README_PAGE if path == README else path.removeprefix(DOCS)


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
                added = File.generated(config, site_path(path), abs_src_path=str(HOME / path))
                files.append(added)
                if path.endswith(".md"):
                    pages.append(added)
    return files


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
