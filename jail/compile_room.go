package jail

import "cellblock/jail/plan"

// checkRoom refuses rooms in which nothing could be attached.
func (c *compiler) checkRoom() error {
	room := c.spec.Room
	switch {
	case room == "":
		return nil
	case c.spec.Listed:
		return &SpecError{"room", room, "a tree in which only listed paths are shown has no place for a directory that comes later"}
	case c.spec.Tree == TreeShadow:
		return &SpecError{"room", room, "a layer lies over the whole tree: give the directory at the start"}
	case room == "/" || inAny(room, own):
		return &SpecError{"room", room, "the jail has a place of its own there: keep sessions elsewhere"}
	}
	for _, h := range c.spec.Hide {
		if below(room, h.Path) {
			return &SpecError{"room", room, "is hidden by " + h.Path}
		}
	}
	return nil
}

// room says in the plan what is to come.
func (c *compiler) room() {
	if c.spec.Room != "" {
		c.launcher(plan.Step{Op: plan.OpRoom, Path: c.spec.Room,
			Reason: "a directory below it is attached when the jail gets a session, and looked at, before any foreign code runs"})
	}
}
