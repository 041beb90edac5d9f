package jail

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"cellblock/jail/mount"
	"cellblock/jail/plan"
)

// overlay carries out an overlay step of the launcher. Where an optional one
// cannot be made the tree is copied read-only, and that is said.
func overlay(s plan.Step) (fd int, degraded []plan.Degradation, err error) {
	o := mount.Overlay{Lower: s.Source, Layer: s.Data, Attr: s.Flags}
	if s.Map != nil {
		if o.Users, err = users(*s.Map); err != nil {
			return -1, nil, &StepError{s, err}
		}
	}
	fd, err = o.Do()
	if errors.Is(err, mount.ErrNotMappable) {
		// Both layers or none: an owner that only one of them can name could not be
		// copied up.
		degraded = append(degraded, plan.Degradation{Feature: string(IDMappedMount),
			Why: s.Source + ": shown without an id map: only what everybody may read is readable", Remedy: remedies[IDMappedMount]})
		o.Users = nil
		fd, err = o.Do()
	}
	if err == nil {
		return fd, degraded, nil
	}
	if !s.Optional {
		return -1, nil, &MissingFeatureError{Overlay, err.Error(), remedies[Overlay]}
	}
	if errors.Is(err, syscall.ENOENT) {
		fd, err = emptySlot()
		return fd, degraded, err
	}
	// The witness tells the launcher what has become of it.
	c := mount.Copy{Path: s.Source, Attr: s.Flags | unix.MOUNT_ATTR_RDONLY, Users: o.Users}
	if fd, err = c.Do(); err != nil {
		return -1, nil, &StepError{s, err}
	}
	return fd, degraded, nil
}

// leftReadOnly notes the directories that the witness found without a layer. When
// none has one, this Linux makes no overlays for such a launcher, and a session that
// is to have a layer does not start.
func (s *starting) leftReadOnly() error {
	covered, left := 0, ""
	for i, c := range s.plan.Witness[:ownChecks(s.plan)] {
		switch {
		case c.Act != "shadowed":
		case s.results[i].Got == "yes":
			covered++
		case s.results[i].Got == "read-only":
			left = c.Arg
			s.degraded = append(s.degraded, plan.Degradation{Feature: string(Overlay),
				Why: fmt.Sprintf("%s: read-only, not copy-on-write: Linux made no overlay over it", c.Arg), Remedy: remedies[Overlay]})
		}
	}
	if covered == 0 && left != "" {
		return &MissingFeatureError{Overlay, "no overlay could be made, over " + left + " or anything else", remedies[Overlay]}
	}
	return nil
}
