"""The `fedlin federation` commands that set up a federation and change who belongs to it."""

from pathlib import Path
from typing import Annotated

import typer

from fedlin.cli_errors import cli_errors

app = typer.Typer(
    help="Set up, run and watch a federation over NVIDIA FLARE.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `init` wrote.")]
KeysAtSites = Annotated[
    bool, typer.Option("--keys-at-sites", help="Every site makes its own key: see `request` and `sign`.")
]


@app.command()
def init(
    sites: Annotated[list[str], typer.Argument(metavar="SITE", help="The sites' names.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("federation"),
    server: Annotated[str, typer.Option(help="Name or address at which sites reach the server.")] = "localhost",
    port: Annotated[int, typer.Option(min=1024, max=65535, help="The server's port.")] = 8002,
    torch: Annotated[bool, typer.Option("--torch", help="Write each client.py in PyTorch.")] = False,
    keys_at_sites: KeysAtSites = False,
) -> None:
    """Write a federation that runs as it is: certificates, settings, and a client.py for each site."""
    from fedlin.deploy.project import create

    with cli_errors():
        create(out, sites, server, port, torch=torch, keys=not keys_at_sites)
    then = (
        "Each site asks for its certificate: fedlin federation request SITE"
        if keys_at_sites
        else (f"Try it on this machine: fedlin federation start --local {out}")
    )
    typer.echo(f"Wrote {out}. {then}")


@app.command()
def add(
    site: Annotated[str, typer.Argument(metavar="SITE", help="The new site's name.")],
    folder: Folder = Path("federation"),
    keys_at_sites: KeysAtSites = False,
) -> None:
    """Add a site: its folder, its certificate and a line in the settings, for the next run."""
    from fedlin.deploy.participants import add_site

    with cli_errors():
        project = add_site(folder, site, keys=not keys_at_sites)
    typer.echo(f"Wrote {project.site(site)}. Begin a run that has it: fedlin federation run NAME, with --after RUN")
    typer.echo(f"A server on another machine lets {site} in once {folder}/federation.toml lies in its folder, too.")


@app.command()
def remove(
    site: Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")],
    folder: Folder = Path("federation"),
) -> None:
    """Remove a site from the settings: from the next run on the server does not accept it."""
    from fedlin.deploy.participants import remove_site

    with cli_errors():
        remove_site(folder, site)
    typer.echo(f"{site} is no longer a site. Begin a run without it: fedlin federation run NAME, with --after RUN")


@app.command()
def request(kit: Annotated[Path, typer.Argument(metavar="KIT", help="The site's folder, copied here.")]) -> None:
    """At a site: make its key, which stays here, and a request for a certificate, which the authority signs."""
    from fedlin.deploy.participants import request_certificate

    with cli_errors():
        path = request_certificate(kit)
    typer.echo(f"Wrote {path}. Send it to the authority, which runs: fedlin federation sign {path.name}")


@app.command()
def sign(
    requested: Annotated[Path, typer.Argument(metavar="REQUEST", help="The file that a site sent.")],
    folder: Folder = Path("federation"),
) -> None:
    """At the authority: sign a site's request. Make sure first that it came from that site."""
    from fedlin.deploy.participants import sign_request

    with cli_errors():
        path = sign_request(folder, requested)
    typer.echo(f"Wrote {path}. Send it to the site, which runs: fedlin federation install KIT {path.name}")


@app.command()
def install(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The site's folder.")],
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The file that the authority sent.")],
) -> None:
    """At a site: take the certificate that the authority signed, if it is for this site's key."""
    from fedlin.deploy.participants import install_certificate

    with cli_errors():
        install_certificate(kit, certificate)
    typer.echo(f"{kit} can take part: fedlin federation join {kit}")


@app.command()
def renew(folder: Folder = Path("federation")) -> None:
    """New certificates for the same keys; those of sites on other machines are to be sent and installed there."""
    from fedlin.deploy.participants import renew as renew_all

    with cli_errors():
        written = renew_all(folder)
    for path in written:
        typer.echo(f"Wrote {path}")
