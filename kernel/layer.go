package kernel

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"cellblock/jail"
	"cellblock/kernel/shadow"
	"cellblock/policy"
)

// layer is what takes a session's changes in mode shadow. It is made with the first
// worker, and every generation goes on with it. A nil one is that of a session in
// another mode.
type layer struct {
	dir string // of all layers

	mu   sync.Mutex
	made *shadow.Layer
	left []jail.Unshadowed
}

func newLayer(opts Options) (*layer, error) {
	if opts.Shadow == "" {
		return nil, &OptionError{"shadow", "mode shadow keeps changes in a directory of the launcher's own, and none is named: set XDG_STATE_HOME or HOME"}
	}
	return &layer{dir: opts.Shadow}, nil
}

// shadowed reports whether changes go to a layer. Where an enforced default refuses
// them, there is nothing for a layer to take.
func (s *Session) shadowed() bool {
	return s.policy.Mode == policy.Shadow && s.opts.Tier == TierJail && !s.policy.WriteDefault.Enforced
}

// wholly reports whether every change at the rule's path is allowed: those are then
// made on the host itself.
func (s *Session) wholly(r policy.Rule) bool {
	var sum policy.Access
	for _, same := range s.policy.Allow {
		if same.Path == r.Path {
			sum |= same.Access
		}
	}
	return sum.Has(policy.AccessWrite)
}

// ready makes the layer, or prepares it for the next generation.
func (l *layer) ready(s *Session) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		host := jail.Probe()
		covers, left := jail.ShadowPlaces(host)
		meta := shadow.Meta{Trusted: host.Privileged, Session: s.name, Directory: s.dir, Owner: ownerOf(s.dir)}
		for _, r := range s.policy.Refusals() {
			meta.Refused = append(meta.Refused, shadow.Refusal{Path: r.Path, Rule: r.ID, Reason: r.Reason})
		}
		made, err := shadow.Create(l.dir, meta, covers)
		if err != nil {
			return err
		}
		l.made, l.left = made, left
	}
	return l.made.Prepare()
}

// shadowTree has the jail keep changes in the session's layer. Before the layer is
// made, for a plan that is only printed, a name stands for it.
func (s *Session) shadowTree(spec *jail.Spec) {
	spec.Tree = jail.TreeShadow
	if s.layer == nil || s.layer.made == nil {
		covers, left := jail.ShadowPlaces(jail.Probe())
		for i, path := range covers {
			spec.Shadow = append(spec.Shadow, jail.Shadow{Path: path, Layer: filepath.Join("/", s.opts.Shadow, "LAYER", strconv.Itoa(i))})
		}
		spec.Unshadowed = left
		return
	}
	for _, t := range s.layer.made.Trees {
		spec.Shadow = append(spec.Shadow, jail.Shadow{Path: t.Path, Layer: filepath.Join(s.layer.made.Path, t.Dir)})
	}
	spec.Unshadowed = s.layer.left
}

// close ends the session's use of the layer; its name, where something in it stays.
func (l *layer) close() (kept string, err error) {
	if l == nil {
		return "", nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		return "", nil
	}
	stays, err := l.made.Close()
	if !stays {
		return "", err
	}
	return l.made.ID, err
}

func (l *layer) id() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		return ""
	}
	return l.made.ID
}

// note says what becomes of a change that a layer has taken.
func (l *layer) note(d policy.Decision, k policy.OpKind) string {
	if l == nil || d.Enforced || !changesFiles(k) {
		return ""
	}
	return "the host is untouched: what became of it is in layer " + l.id()
}

// killedFull is why a worker was ended whose layer had outgrown its limit.
const killedFull = "shadow limit"

// lookEvery is the time between two measurements of a layer that has a limit: on
// the host's own file system nothing keeps a directory from growing, so that the
// limit is kept by who looks, and can be overrun for as long.
const lookEvery = 250 * time.Millisecond

// watch ends a worker whose layer has outgrown its limit.
func (l *layer) watch(w *worker, limit int64) {
	if l == nil || limit <= 0 {
		return
	}
	l.mu.Lock()
	made := l.made
	l.mu.Unlock()
	go func() {
		for {
			timer, cancel := after(lookEvery)
			select {
			case <-w.proc.Done():
				cancel()
				return
			case <-timer:
			}
			if size, err := made.Size(limit); err != nil || size > limit {
				w.kill(killedFull)
				return
			}
		}
	}()
}

// ownerOf is whom a directory belongs to.
func ownerOf(dir string) *shadow.Owner {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil // the jail tells why
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return &shadow.Owner{UID: s.Uid, GID: s.Gid}
	}
	return nil
}
