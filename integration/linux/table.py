"""What kernels said when they were booted (integration/linux/inside), as tables.

table.py PATH...: each PATH.log is the console of one. Ends with 1 where a kernel lacks
what each must have, or something came about that is to be refused.
"""

import json
import os
import sys

# What Debian's kernels have, for root and for an ordinary user alike.
WANTED = ("userns", "mountns", "pidns", "ipcns", "netns", "proc", "landlock", "seccomp", "seccomp-notify", "pidfd", "close-range", "mount-setattr")
# "forked" is enforce, too, with a worker that was forked.
MODES = ("outside", "enforce", "report", "shadow", "forked")


def read(path):
    """{(user, kind): [line]} of a console, and whether it came to its end."""
    found, whole = {}, False
    with open(path, errors="replace") as console:
        for line in console:
            at = line.find("@")
            words = line[at + 1:].rstrip("\r\n").split(" ", 2) if at >= 0 else []
            if words == ["end"]:
                whole = True
            elif len(words) == 3:
                found.setdefault((words[0], words[1]), []).append(words[2])
            elif len(words) == 2:
                found.setdefault((words[0], words[1]), []).append("")
    return found, whole


def attempts(found, user, mode):
    """{attempt: how it ended}; empty where there was no session."""
    lines = found.get((user, "said-" + mode), [])
    if mode != "outside":
        try:
            lines = json.loads("\n".join(lines))["details"]["stdout"].splitlines()
        except (ValueError, KeyError):
            return {}
    return dict(line.rsplit(": ", 1) for line in lines if ": " in line)


def main(paths):
    problems = []
    for path in paths:
        name = os.path.basename(path)
        found, whole = read(path + ".log")
        print("\n%s" % name)
        if not whole:
            problems.append("%s did not come to its end" % name)
            with open(path + ".log", errors="replace") as console:
                print(console.read()[-3000:])
        for user in ("root", "user"):
            try:
                report = json.loads("\n".join(found.get((user, "json"), [])))
            except ValueError:
                problems.append("%s, %s: doctor said nothing: %s" % (name, user, found.get((user, "json"))))
                continue
            features = report["features"]
            print("  %s: Linux %s, Landlock ABI %d, cgroup %s, jail %s" % (user, features["kernel"], features["landlockABI"], features["cgroupMode"], report["jail"]))
            for answer in ("yes", "no", "could not tell"):
                print("    %-14s %s" % (answer, " ".join(sorted(k for k, v in features["findings"].items() if v["answer"] == answer))))
            if report["jail"] != "works":
                problems.append("%s, %s: no jail: %s" % (name, user, report["jail"]))
            for feature in WANTED:
                if features["findings"].get(feature, {}).get("answer") == "no":
                    problems.append("%s, %s: %s: %s" % (name, user, feature, features["findings"][feature]["why"]))
            for degraded in report.get("degraded") or ():
                print("    degraded: %s" % json.dumps(degraded))
            said = {mode: attempts(found, user, mode) for mode in MODES}
            print("    %-22s %s" % ("attempt", " ".join("%-10s" % m for m in MODES)))
            for attempt in said["outside"]:
                print("    %-22s %s" % (attempt, " ".join("%-10s" % said[m].get(attempt, "-") for m in MODES)))
                for mode in ("enforce", "forked"):
                    if said[mode].get(attempt, "-") in ("done", "-"):
                        problems.append("%s, %s: %s under enforce (%s): %s" % (name, user, attempt, mode, said[mode].get(attempt, "no session")))
            if not said["outside"]:
                problems.append("%s, %s: no control" % (name, user))
            clock = dict(line.split(": ", 1) for line in found.get((user, "said-clock"), []) if ": " in line)
            for jump, how in clock.items():
                print("    clock set: %-28s %s" % (jump, how))
                if how != "kept" and not ("a commit" in jump and features["findings"]["overlay"]["answer"] != "yes"):
                    problems.append("%s, %s: clock set: %s: %s" % (name, user, jump, how))
            if len(clock) < 8:
                problems.append("%s, %s: the clock was set only for %s" % (name, user, found.get((user, "said-clock"))))
            for mode in MODES[1:]:
                if not said[mode]:
                    lines = " ".join(found.get((user, "said-" + mode), []))
                    print("    %s: no session: %.300s" % (mode, lines))
                    if mode != "shadow" or features["findings"]["overlay"]["answer"] == "yes":
                        problems.append("%s, %s: no session in mode %s" % (name, user, mode))
    for problem in problems:
        print("FAIL %s" % problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
