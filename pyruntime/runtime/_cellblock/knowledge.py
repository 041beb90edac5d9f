"""service_knowledge: bound when the session directory has a service registry."""

import os
import time

REGISTRY = "service-registry.json"
UMBRELLAS = ("service-knowledge", "service-skills")
RESERVED = ("default", "optional", "user", "state", "_template", "__pycache__")


def registry(directory):
    """Path of the session's service registry, or None."""
    packs = os.path.join(directory, ".xtrm", "skills")
    try:
        names = sorted(os.listdir(packs))
    except OSError:
        return None
    for name in names:
        if name in RESERVED or name.startswith("."):
            continue
        for umbrella in UMBRELLAS:
            path = os.path.join(packs, name, umbrella, REGISTRY)
            if os.path.isfile(path):
                return path
    return None


def bind(directory, namespace, errors, audit):
    """Bind service_knowledge and sk_rebuild; what fails is recorded in errors."""
    if registry(directory) is None:
        return 0
    try:
        import service_knowledge
    except BaseException as err:
        errors["service_knowledge"] = "%s: %s" % (type(err).__name__, err)
        return 0

    def sk_rebuild():
        """Build the service index afresh: {"items": N, "duration_ms": ...}."""
        import importlib

        index = importlib.import_module("service_knowledge.index")
        start = time.monotonic()
        items = index.build()
        count = items if isinstance(items, int) else len(items)
        done = {"items": count, "duration_ms": round((time.monotonic() - start) * 1000, 3)}
        audit().append({"op": "sk_rebuild", **done})
        return done

    namespace["service_knowledge"] = service_knowledge
    namespace["sk_rebuild"] = sk_rebuild
    return 2
