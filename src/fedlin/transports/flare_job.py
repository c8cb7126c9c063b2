"""What both parts of a job over NVIDIA FLARE do at their start: find out where they are, open the log, load a program.

A job brings no code and names none: what to run is the choice of whoever starts the process, in its environment, as an
entry point "package.module:function".
"""

import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fedlin.transports.message_codes import JobKey
from fedlin.transports.signatures import Signer
from fedlin.transports.transport import PROGRAM

LOG = "fedlin.log"  # in the kit's folder: what fedlin itself has to say, in all jobs
_LOG_SIZE, _LOG_FILES = 1 << 20, 5  # bytes after which a new file is begun, and how many old ones are kept

# At the end of a job FLARE imports PyTorch where it is installed, to clean up after tensors that were sent. Messages
# here are bytes, and a second is much.
sys.modules.setdefault("nvflare.app_opt.pt.tensor_downloader", None)  # type: ignore[arg-type] # which means: not there


class JobPlace(NamedTuple):
    """Where a process of a job is."""

    name: str  # its participant's
    kit: Path  # the folder of the kit it runs from, which outlives the job
    job: str  # the job's id
    sent: str  # the folder of what came with the job
    cell: Any  # FLARE's, through which it sends

    def key(self, role: str, site: str) -> JobKey:
        """A new key pair for a site's messages of this job, for which the certificate of the kit vouches."""
        return JobKey(Signer(self.kit / "startup", role), self.job, site)

    @property
    def root(self) -> bytes:
        """The certificate of the federation's authority, as PEM."""
        return (self.kit / "startup" / "rootCA.pem").read_bytes()


def job_place(context: Any) -> JobPlace:
    """Where the process is whose component FLARE gives this context."""
    engine, job = context.get_engine(), str(context.get_job_id())
    workspace = engine.get_workspace()
    kit = Path(workspace.get_root_dir())
    return JobPlace(str(context.get_identity_name()), kit, job, workspace.get_app_config_dir(job), engine.get_cell())


def open_log(kit: Path) -> None:
    """Have fedlin's own log in the kit's folder."""
    log = RotatingFileHandler(kit / LOG, maxBytes=_LOG_SIZE, backupCount=_LOG_FILES, encoding="utf-8")
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("fedlin").addHandler(log)


def program() -> Callable[..., Any]:
    """What this process runs."""
    module, function = _program()
    run: Callable[..., Any] = getattr(module, function)
    return run


def program_module() -> ModuleType:
    """Where it stands."""
    return _program()[0]


def _program() -> tuple[ModuleType, str]:
    module, _, function = os.environ[PROGRAM].partition(":")
    return import_module(module), function
