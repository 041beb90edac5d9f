package kernel

import (
	"os"
	"path/filepath"
	"slices"

	"cellblock/kernel/extension"
	"cellblock/policy"
)

// ownDirectory is where cellblock looks for what belongs to a person or to a project,
// below the home or the session's directory.
const ownDirectory = ".cellblock"

// ExtensionRoots are the directories in which extensions are looked for when nothing
// else is said: the operator's, and the session directory's.
func ExtensionRoots(home, sessionDir string) []string {
	var roots []string
	for _, base := range []string{home, sessionDir} {
		if base == "" || base == "/" {
			continue
		}
		if root := filepath.Join(base, ownDirectory, "extensions"); !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// hiddenExtensions are the directories that no session sees or changes, whether or not
// their extensions are loaded: a later session may load them. What is not there in the
// session directory is left alone: a stub would be seen there. What a session makes of
// it is not loaded, since nobody has trusted it.
func hiddenExtensions(opts Options, dir, home string) []string {
	var hidden []string
	for _, root := range ExtensionRoots(home, dir) {
		hidden = append(hidden, filepath.Dir(root))
	}
	for _, root := range opts.Extensions {
		if abs, err := filepath.Abs(root); err == nil {
			hidden = append(hidden, abs)
		}
	}
	slices.Sort(hidden)
	hidden = slices.Compact(hidden)
	return slices.DeleteFunc(hidden, func(path string) bool { return policy.Within(dir, path) && !isThere(path) })
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// extensionRoots are the roots of a session with these options, and what is not
// loaded although it would be elsewhere. Of the session directory's own place only what
// is trusted is loaded, unless the caller named it, and none where it is not hidden from
// the session, which then has made it.
func extensionRoots(opts Options, dir, home string, hidden bool) (roots []extension.Root, left []extension.Warning) {
	dirs := opts.Extensions
	if dirs == nil {
		dirs = ExtensionRoots(home, dir)
	}
	project := filepath.Join(dir, ownDirectory)
	for _, d := range dirs {
		abs, err := filepath.Abs(d)
		switch {
		case err != nil:
			left = append(left, extension.Warning{Path: d, Why: err.Error()})
		case policy.Within(dir, abs) && opts.Tier == TierProcess:
			if isThere(abs) {
				left = append(left, extension.Warning{Path: abs, Why: "is not loaded in tier process, in which cells can change it"})
			}
		case policy.Within(project, abs) && !hidden:
			if isThere(abs) {
				left = append(left, extension.Warning{Path: abs, Why: "was made after this session began, which can change it: begin another one"})
			}
		case policy.Within(project, abs) && opts.Extensions == nil:
			root, err := projectRoot(opts.Trust, dir)
			if err != nil {
				left = append(left, extension.Warning{Path: abs, Why: "nothing of it is trusted: " + err.Error()})
			}
			roots = append(roots, root)
		case policy.Within(project, abs):
			roots = append(roots, extension.Root{Dir: abs, Within: dir})
		default:
			roots = append(roots, extension.Root{Dir: abs})
		}
	}
	return roots, left
}

// projectRoot is the session directory's own place for extensions, with what is trusted
// of it.
func projectRoot(store, dir string) (extension.Root, error) {
	root := extension.Root{Dir: filepath.Join(dir, ownDirectory, "extensions"), Within: dir}
	var err error
	root.Trust, err = extension.ReadTrust(store, root.Dir)
	return root, err
}

// TrustExtensions makes the extensions in a session directory's own place, as they are
// now, be loaded by sessions whose Options.Trust is store; with forget, none of them any
// more. The caller has read them: they run with the operator's rights. The warnings say
// what is not trusted. The directory's path may be relative.
func TrustExtensions(store, sessionDir string, forget bool) (extension.Trust, []extension.Warning, error) {
	dir, err := filepath.EvalSymlinks(sessionDir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return extension.Trust{}, nil, err
	}
	root, _ := projectRoot("", dir)
	if forget {
		return extension.Trust{Directory: root.Dir}, nil, extension.Forget(store, root.Dir)
	}
	return extension.Keep(store, root)
}

// ownHidden reports whether the session directory's own place for extensions was there,
// and is out of the session's reach.
func (s *Session) ownHidden() bool {
	own := filepath.Join(s.dir, ownDirectory)
	return s.opts.Tier == TierJail && slices.ContainsFunc(s.policy.Deny, func(r policy.Rule) bool {
		return r.Path == own && r.Enforced && r.Access.Has(policy.AccessRead)
	})
}
