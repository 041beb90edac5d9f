package jail

import (
	"path"
	"strings"

	"cellblock/jail/plan"
)

// Shadow is a directory whose changes go to a layer.
type Shadow struct {
	// Path is a directory of the host. No part of it may be a symbolic link.
	Path string
	// Layer is a directory of the launcher's own, on the host, that holds the
	// directories "upper", which takes the changes, and "work", which is empty and
	// on the same file system. No two jails may use one at the same time.
	Layer string
}

// Unshadowed is a place that a layer cannot cover, and that stays read-only.
type Unshadowed struct{ Path, Why string }

// checkShadow refuses layers that no plan can be made of.
func (c *compiler) checkShadow() error {
	s := &c.spec
	if s.Tree != TreeShadow {
		if len(s.Shadow) > 0 {
			return &SpecError{"shadowed directory", s.Shadow[0].Path, "belongs to a tree of kind shadow"}
		}
		return nil
	}
	if s.Listed {
		return &SpecError{"tree", "shadow", "a tree in which only listed paths are shown has no layer: show the host's tree, or make it read-only"}
	}
	seen := map[string]bool{}
	for _, one := range s.Shadow {
		switch {
		case seen[one.Path] || seen[one.Layer]:
			return &SpecError{"shadowed directory", one.Path, "named twice, or its layer is"}
		case one.Path == "/" && !c.host.Privileged:
			// overlayfs takes no lower layer with locked mounts in it.
			return &SpecError{"shadowed directory", "/", "only a privileged launcher can cover the whole tree: name directories in it"}
		case inAny(one.Path, own) || one.Path != "/" && strings.HasPrefix("/dev", one.Path+"/"):
			return &SpecError{"shadowed directory", one.Path, "lies in a place of the jail's own"}
		case below(one.Layer, s.Dir):
			return &SpecError{"layer", one.Layer, "lies in the working directory, where the worker could change it"}
		}
		seen[one.Path], seen[one.Layer] = true, true
	}
	if _, whole := c.layerOf("/"); c.host.Privileged && !whole {
		return &SpecError{"tree", "shadow", "a privileged launcher covers / first: add it to the shadowed directories"}
	}
	return nil
}

func (c *compiler) layerOf(dir string) (Shadow, bool) {
	for _, s := range c.spec.Shadow {
		if s.Path == dir {
			return s, true
		}
	}
	return Shadow{}, false
}

// overlay adds the step that makes an overlay, on the side that can, and returns
// its slot.
func (c *compiler) overlay(s Shadow, optional bool) int {
	step := plan.Step{Op: plan.OpOverlay, Slot: c.slots, Source: s.Path, Data: s.Layer, Flags: attrQuiet, Optional: optional,
		Reason: "changes go to a layer of the session's own, and the host's files stay as they are"}
	c.slots++
	if c.plan.SwitchIDs {
		if step.Map = c.ownerMap(0, 0, false); step.Map != nil {
			// overlayfs works in the layer as root, who must have an id there too.
			step.Map.Swap = true
		}
		for _, m := range c.host.Mounts {
			if m.Path == s.Path && m.IDMap == No {
				step.Map = nil
			}
		}
		c.launcher(step)
	} else {
		c.stage(step)
	}
	return step.Slot
}

// unshadowed says in the plan what stays read-only.
func (c *compiler) unshadowed() {
	for _, u := range c.spec.Unshadowed {
		c.degrade(Overlay, u.Path+": read-only, not copy-on-write: "+u.Why, "keep what is to be changed in the session directory, or in a directory that a layer covers")
	}
}

// witnessShadow proves for each directory that what is written there goes to a
// layer, or that nothing can be written.
func (c *compiler) witnessShadow(check func(name, act, arg, reason string, want ...string)) {
	if c.spec.Tree != TreeShadow {
		return
	}
	if !c.plan.SwitchIDs {
		check("write-tree", "create", "/.cellblock-witness", "beside the layers the tree is read-only", "EROFS")
	}
	check("remount", "remount", "/", "and stays so", refused...)
	for _, s := range c.spec.Shadow {
		want := []string{"yes"}
		if s.Path != "/" {
			want = append(want, "read-only", "ENOENT", "ENOTDIR", "EACCES")
		}
		check("shadow "+path.Clean(s.Path), "shadowed", s.Path, "changes go to the layer; read-only where none could be had", want...)
	}
	if !c.plan.SwitchIDs {
		return
	}
	for _, m := range c.host.Mounts {
		if _, covered := c.layerOf(m.Path); covered || pseudo[m.FSType] || inAny(m.Path, own) {
			continue
		}
		check("read-only "+m.Path, "read-only", m.Path, "no layer covers this file system", "yes", "ENOENT", "ENOTDIR", "EACCES")
	}
}
