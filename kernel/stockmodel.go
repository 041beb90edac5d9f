package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"cellblock/jail"
	"cellblock/policy"
	"cellblock/pyruntime"
)

// inStock is the jail of a worker whose session is yet to come.
// What is hidden in the directory itself is covered when that is attached.
func inStock(spec jail.Spec, room, dir string) jail.Spec {
	spec.Dir, spec.Room = "/", room
	own := filepath.Join(dir, ownDirectory)
	spec.Hide = slices.DeleteFunc(slices.Clone(spec.Hide), func(h jail.Hide) bool { return h.Path == own })
	return spec
}

// stockTemp stands for a worker's own temp directory where jails are compared.
const stockTemp = "/tmp/pi-py-kernel-0"

// model returns what a worker for this session could be made by, before it has come;
// the key that it has in common with the sessions that could get that worker; and what
// is to be attached for this one. The error says why there can be none.
func (st *Stock) model(s *Session) (model *Session, key string, bind jail.Bind, err error) {
	unfit := func(why string, args ...any) (*Session, string, jail.Bind, error) {
		return nil, "", bind, fmt.Errorf("stock: session %s: "+why, append([]any{s.name}, args...)...)
	}
	room := st.options.Sessions
	switch {
	case s.opts.Tier != TierJail:
		return unfit("tier %s has no jail", s.opts.Tier)
	case s.shadowed():
		return unfit("mode shadow lays a layer of its own over the tree")
	case s.dir == room || !policy.Within(room, s.dir):
		return unfit("its directory %s does not lie in %s", s.dir, room)
	}
	rule, write := s.whereCellsStart()
	if bind, err = s.bindOf(rule, write); err != nil {
		return unfit("%w", err)
	}
	if !bind.Write {
		return unfit("its directory cannot be written")
	}
	model = &Session{opts: s.opts, name: "stock", dir: s.dir, home: s.home, policy: s.policy, digest: s.digest, shape: s.shape, stocked: room}
	model.opts.Stock, model.opts.Audit, model.opts.Input, model.opts.Log, model.opts.Tools = nil, "", nil, nil, nil
	if model.start, err = model.jailTier(); err != nil {
		return unfit("%w", err)
	}
	if key, err = st.keyOf(model); err != nil {
		return unfit("%w", err)
	}
	return model, key, bind, nil
}

// keyOf is the key of the jail that a start would make for a model now.
func (st *Stock) keyOf(model *Session) (string, error) {
	python, err := interpreter(model.opts.PythonBin, model.places())
	if err != nil {
		return "", err
	}
	profile, filter, err := model.profileOf()
	if err != nil {
		return "", err
	}
	source := filepath.Join(stockTemp, "runtime")
	spec, err := model.jailSpec(profile, filter, launch{argv: pyruntime.Command(python, source, wireNumber), env: model.environment(), dir: model.dir,
		temp: stockTemp, source: source, interpreter: python, skillRoots: model.opts.SkillRoots})
	if err != nil {
		return "", err
	}
	spec = inStock(spec, model.stocked, model.dir)
	if spec.Listed {
		return "", errors.New("its policy shows listed paths alone")
	}
	if place := placeIn(spec, model.dir); place != "" {
		return "", fmt.Errorf("its jail has %s within the session directory", place)
	}
	return stockKey(model, spec, python)
}

// placeIn finds what a jail has in a directory, or knows of it.
func placeIn(spec jail.Spec, dir string) string {
	found := ""
	look := func(what string, paths ...string) {
		for _, p := range paths {
			if found == "" && policy.Within(dir, p) {
				found = what + " " + p
			}
		}
	}
	for _, b := range spec.Binds {
		look("a bind", b.Source, b.Target)
	}
	for _, h := range spec.Hide {
		look("a hidden path", h.Path)
	}
	for _, g := range spec.Guards {
		look("a guard", g.Path)
	}
	for _, g := range spec.Grants {
		look("a grant", g.Path)
	}
	for _, l := range spec.Links {
		look("a link", l.Path)
	}
	for _, f := range spec.Files {
		look("a file", f.Path)
	}
	for _, d := range spec.Dirs {
		look("a directory", d.Path)
	}
	for _, w := range append(spec.Argv, spec.Env...) {
		if found == "" && strings.Contains(w, dir) {
			found = "a variable or an argument"
		}
	}
	return found
}

// policyShape is the same for sessions whose policies, given as JSON, differ in the place of
// their directory alone.
func policyShape(s *Session, text []byte) string {
	own := filepath.Join(s.dir, ownDirectory) // covered when the directory is attached
	if hides := func(r policy.Rule) bool { return r.Path == own }; slices.ContainsFunc(s.policy.Deny, hides) {
		common := s.policy
		common.Deny = slices.DeleteFunc(slices.Clone(common.Deny), hides)
		text = common.JSON()
	}
	quoted, err := json.Marshal(s.dir)
	if err != nil {
		panic(err) // a string always marshals
	}
	quoted = quoted[:len(quoted)-1] // the opening quote and the path
	for _, end := range []string{`"`, `/`} {
		text = bytes.ReplaceAll(text, append(bytes.Clone(quoted), end...), []byte(`"${session}`+end))
	}
	return policy.DigestOf(text)
}

// stockKey is the same for sessions of which each could have a worker that was made for
// another: jail, policy and interpreter are equal but for the place of their directory.
func stockKey(s *Session, spec jail.Spec, python string) (string, error) {
	real, err := filepath.EvalSymlinks(python)
	if err != nil {
		return "", err
	}
	var program syscall.Stat_t
	if err := syscall.Stat(real, &program); err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%d %d %d %d\x00%s\x00%s", spec.Digest(), python, real, program.Dev, program.Ino, program.Size, program.Mtim.Nano(), s.opts.Runtime, s.shape)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// errStale is a worker, or a kind of them, that the host has changed under.
var errStale = errors.New("the host has changed since this jail was made")

// placeID tells files of the host apart; zero for what is not there.
type placeID struct{ dev, ino uint64 }

// places identifies what a jail covers and guards, or would if it were there. A cover lies
// on a file, not on its name: where the file is another one now, nothing covers it.
func (j *jailed) places() (ids []placeID) {
	for _, c := range j.plan.Witness {
		if c.Act == "covered" || c.Act == "read-only" || c.Act == "no-exec" {
			var stat syscall.Stat_t
			if syscall.Lstat(c.Arg, &stat) == nil {
				ids = append(ids, placeID{stat.Dev, stat.Ino})
			} else {
				ids = append(ids, placeID{})
			}
		}
	}
	return ids
}

// leave makes a worker from stock a session's. No foreign code has run in it.
func (w *worker) leave(s *Session, bind jail.Bind) error {
	j, ok := w.proc.(*jailed)
	if !ok {
		return errors.New("not in a jail")
	}
	if !slices.Equal(j.places(), w.places) {
		return errStale
	}
	found, err := j.Attach(bind)
	if err != nil {
		return err
	}
	j.later = append(j.later, witnessOf(found))
	if err := w.coverOwn(s, j); err != nil {
		return err
	}
	w.watch.rules.Store(&s.policy)
	if s.opts.Log != nil {
		for _, d := range j.Report().Degraded {
			fmt.Fprintf(s.opts.Log, "jail degraded: %s: %s\n", d.Feature, d.Why)
		}
	}
	return nil
}

func witnessOf(found jail.Witnessed) Witness {
	return Witness{Name: found.Name, Act: found.Act, Arg: found.Arg, Got: found.Got, Reason: found.Reason}
}

// coverOwn hides the session directory's own place for extensions.
func (w *worker) coverOwn(s *Session, j *jailed) error {
	own := filepath.Join(s.dir, ownDirectory)
	if !s.ownHidden() {
		return nil // it is not there
	}
	empty := filepath.Join(w.temp.path, "covered")
	if err := os.Mkdir(empty, 0); err != nil {
		return err
	}
	found, err := j.Cover(empty, own)
	if err != nil {
		return err
	}
	j.later = append(j.later, witnessOf(found))
	return nil
}
