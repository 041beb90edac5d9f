"""preflight: a read-only look at one file's history before it is touched."""

import os
import shutil
import subprocess

MAX_BODY = 2000  # characters of one commit message that the digest shows
_SPLIT = "\x1e"
_FIELD = "\x1f"


def _git(repo, *arguments):
    done = subprocess.run(
        ["git", "-C", str(repo), "--no-pager", "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30,
    )
    return done.returncode, done.stdout, done.stderr


def preflight(repo, path, n=4):
    """Print a bounded digest of one file's history and return its records.

    repo is a git work tree, path a file in it (relative to repo, or absolute), n how
    many commits to show, newest first (git log --follow). Returns a dictionary:
    commits (hash, author, date, subject, body), pending (git diff --stat of what is
    not committed) and memories (keys that `bd memories` lists for the base name,
    when bd is on PATH). Nothing is changed. ValueError when n is not positive.
    """
    if n < 1:
        raise ValueError("preflight n: %r is not a positive number" % (n,))
    form = _FIELD.join(("%H", "%an", "%aI", "%s", "%b")) + _SPLIT
    code, out, err = _git(repo, "log", "--follow", "-n", str(int(n)), "--format=" + form, "--", str(path))
    found = {"repo": str(repo), "path": str(path), "commits": [], "pending": "", "memories": []}
    if code:
        found["error"] = err.strip()[:MAX_BODY]
    for record in out.split(_SPLIT):
        fields = record.strip("\n").split(_FIELD)
        if len(fields) == 5:
            found["commits"].append(dict(zip(("hash", "author", "date", "subject", "body"), fields)))
    code, out, _ = _git(repo, "diff", "HEAD", "--stat", "--", str(path))
    if not code:
        found["pending"] = out.strip()
    found["memories"] = _memories(os.path.basename(str(path)))
    print(_digest(found))
    return found


def _memories(name):
    if not shutil.which("bd"):
        return []
    try:
        done = subprocess.run(["bd", "memories", name], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=10)
    except (OSError, subprocess.SubprocessError):
        return []
    keys = []
    for line in done.stdout.splitlines():
        key = line.strip().lstrip("-* ").partition(":")[0].strip()
        if key and not key.startswith("#"):
            keys.append(key)
    return keys[:50]


def _digest(found):
    lines = ["preflight %s" % found["path"]]
    if found.get("error"):
        lines.append("git: " + found["error"])
    if not found["commits"]:
        lines.append("0 commits: the path is wrong, or git does not track it (repo %s)" % found["repo"])
    for commit in found["commits"]:
        lines.append("%s %s %s" % (commit["hash"][:12], commit["date"][:10], commit["subject"]))
        body = commit["body"].strip()
        if body:
            lines.extend("    " + line for line in body[:MAX_BODY].splitlines())
    lines.append("pending: " + (found["pending"] or "nothing"))
    if found["memories"]:
        lines.append("memories: " + ", ".join(found["memories"]))
    return "\n".join(lines)
