"""Somebody on the machine of a site, without a certificate: `local_user.py PORT NAME` tries to join as NAME.evil.

Prints what FLARE's process says to a request for its peers, or that it says nothing.
"""

import sys

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

if __name__ == "__main__":
    port, name = sys.argv[1:]
    url = f"tcp://127.0.0.1:{port}"
    cell = CoreCell(f"{name}.evil", root_url=url, secure=False, credentials={}, parent_url=url)
    cell.start()
    reply = cell.send_request("_net_manager", "peers", name, Message(), timeout=3.0)
    print(reply.get_header(MessageHeaderKey.RETURN_CODE), flush=True)
    cell.stop()
