"""Certificates as nobody should accept them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedlin.deploy.flare.authority import Authority, make_key
from fedlin.deploy.project import AUTHORITY, Project


def expired_certificate(project: Project, name: str) -> tuple[Path, Path]:
    """Signed by the federation's own authority, for a year that is over."""
    key, pem = make_key()
    begun = datetime.now(UTC) - timedelta(days=400)
    certificate = Authority(project.folder / AUTHORITY).issue(name, key.public_key(), start=begun, days=365)
    paths = project.folder / "expired.crt", project.folder / "expired.key"
    for path, content in zip(paths, (certificate, pem), strict=True):
        path.write_bytes(content)
    return paths
