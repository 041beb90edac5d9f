"""The module that cells import as cellblock: what the host can be asked for."""

import sys
import types

from .errors import HostError, InvalidArguments, ScopeClosed, TurnYield

OUTCOMES = ("no-change", "needs-evidence", "deferred", "candidate-failed", "activated")
REASONED = ("no-change", "deferred", "candidate-failed")


def _refuse(method, why):
    raise InvalidArguments("invalid-arguments", "%s: %s" % (method, why))


def _text(method, name, value):
    if not isinstance(value, str) or not value.strip():
        _refuse(method, "%s is a text that says something" % name)


def _texts(method, name, value):
    if isinstance(value, (str, bytes)) or not all(isinstance(v, str) and v for v in value):
        _refuse(method, "%s is a list of texts" % name)
    return list(value)


def _number(method, name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(method, "%s is a whole number of milliseconds" % name)


def install(calls):
    """Make the module. It comes from no path, so that nothing can take its place."""
    module = types.ModuleType("cellblock", """Calls from a cell to the host.

call(name, **arguments) calls a tool by its name. Tools that the host bound are
there by their names as well. In code that runs in an event loop a call is awaited:
await call(...). Elsewhere it returns when the host has answered.

HostError(code, message) is a call that was refused or failed. ScopeClosed is one
that came after its cell had ended or yielded. raise TurnYield(value) ends the cell.
""")

    def public(function):
        function.__module__ = "cellblock"
        function.__qualname__ = function.__name__
        setattr(module, function.__name__, function)
        return function

    @public
    def call(name, /, **arguments):
        """Call the host's tool of that name. HostError when it is refused or fails."""
        return calls.call(str(name), arguments)

    @public
    def workspace_info():
        """The session's directory and name: {"path": ..., "session_id": ...}."""
        return calls.call("workspace.info", {})

    @public
    def evidence_resolve(refs):
        """What the host knows of each reference: {"resolved": [{"ref", "kind", ...}],
        "unavailable": [{"ref", "reason"}]}."""
        return calls.call("evidence.resolve", {"refs": _texts("evidence_resolve", "refs", refs)})

    @public
    def maintenance_originate(purpose, reason, evidence_refs=(), impact=None):
        """Open a work item and return it. InvalidArguments without purpose or reason."""
        _text("maintenance_originate", "purpose", purpose)
        _text("maintenance_originate", "reason", reason)
        arguments = {"purpose": purpose, "reason": reason, "evidence_refs": _texts("maintenance_originate", "evidence_refs", evidence_refs)}
        if impact is not None:
            arguments["impact"] = impact
        return calls.call("maintenance.originate", arguments)

    @public
    def maintenance_assess(work_item_id, outcome, reason=None, missing_refs=(), revisit_condition=None,
                           revisit_deadline_ms=None, trigger_ms=None, candidate_revision=None, check_receipts=()):
        """Say what became of a work item. The outcome is no-change, needs-evidence,
        deferred, candidate-failed or activated. InvalidArguments where something is
        missing that the outcome needs; nothing is sent then."""
        name = "maintenance_assess"
        _text(name, "work_item_id", work_item_id)
        if outcome not in OUTCOMES:
            _refuse(name, "outcome %.80r is none of %s" % (outcome, ", ".join(OUTCOMES)))
        missing, receipts = _texts(name, "missing_refs", missing_refs), list(check_receipts)
        for number, value in (("revisit_deadline_ms", revisit_deadline_ms), ("trigger_ms", trigger_ms)):
            if value is not None:
                _number(name, number, value)
        if outcome in REASONED and not (isinstance(reason, str) and reason.strip()):
            _refuse(name, "outcome %s needs a reason" % outcome)
        if outcome == "needs-evidence" and not missing and revisit_deadline_ms is None:
            _refuse(name, "outcome needs-evidence needs missing_refs or revisit_deadline_ms")
        if outcome == "activated" and not candidate_revision:
            _refuse(name, "outcome activated needs candidate_revision")
        arguments = {"work_item_id": work_item_id, "outcome": outcome, "reason": reason, "missing_refs": missing,
                     "revisit_condition": revisit_condition, "revisit_deadline_ms": revisit_deadline_ms,
                     "trigger_ms": trigger_ms, "candidate_revision": candidate_revision, "check_receipts": receipts}
        return calls.call("maintenance.assess", {k: v for k, v in arguments.items() if v is not None})

    for kind in (HostError, ScopeClosed, InvalidArguments, TurnYield):
        setattr(module, kind.__name__, kind)
    module.__all__ = sorted(n for n in vars(module) if not n.startswith("_"))
    sys.modules["cellblock"] = module
