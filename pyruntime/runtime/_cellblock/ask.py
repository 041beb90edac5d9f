"""input() and getpass(): answered by the host, or refused at once."""

import builtins
import sys

from . import source
from .errors import HostError

NO_ONE = "%s: no one is there to answer; pass the value in the code, or use a host that answers input"


class Asker:
    """Puts questions to the host when it offered to answer."""

    def __init__(self, call):
        self._call = call
        self.offered = False

    def install(self):
        """Take the place of input and of getpass.getpass."""

        def input(prompt="", /):
            """Ask the host for one line of text. EOFError when it does not answer."""
            return self._ask("input()", str(prompt), False)

        def getpass(prompt="Password: ", stream=None, **_):
            """Ask the host for a secret. EOFError when it does not answer."""
            return self._ask("getpass()", str(prompt), True)

        builtins.input = input

        def teach(module):
            module.getpass = module.unix_getpass = getpass

        source.after_import("getpass", teach)

    def _ask(self, what, prompt, secret):
        stdin = sys.stdin
        if not secret and getattr(stdin, "_pending", ""):
            sys.stdout.write(prompt)
            return stdin.readline().rstrip("\n")
        if not self.offered:
            sys.stdout.write(prompt)
            sys.stdout.flush()
            raise EOFError(NO_ONE % what)
        sys.stdout.flush()
        try:
            answer = self._call("input", {"prompt": prompt, "password": secret})
        except HostError as err:
            if err.code != "no-answer":
                raise
            raise EOFError("%s: %s" % (what, err.message)) from None
        if not isinstance(answer, str):
            raise EOFError("%s: the host gave no answer" % what)
        return answer
