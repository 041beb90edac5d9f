package plan

import (
	"strconv"
	"strings"
)

var attrNames = []struct {
	bit  uint64
	name string
}{{1, "ro"}, {2, "nosuid"}, {4, "nodev"}, {8, "noexec"}}

// AttrString names MOUNT_ATTR_* flags, whose low bits are those of MS_*.
func attrString(flags uint64) string {
	var out []string
	for _, a := range attrNames {
		if flags&a.bit != 0 {
			out = append(out, a.name)
			flags &^= a.bit
		}
	}
	if flags != 0 {
		out = append(out, "0x"+strconv.FormatUint(flags, 16))
	}
	return strings.Join(out, ",")
}

// Title is the step in a few words, without its reason.
func (s Step) Title() string {
	w := []string{string(s.Op)}
	add := func(parts ...string) {
		for _, p := range parts {
			if p != "" {
				w = append(w, p)
			}
		}
	}
	switch s.Op {
	case OpCgroup:
		add(s.Path)
		for _, l := range s.Limits {
			add(l.Name + "=" + strconv.FormatInt(l.Value, 10))
		}
	case OpSpawn, OpDropCaps:
		add(s.Names...)
	case OpClone:
		add(s.Source, attrString(s.Flags))
		if s.Recursive {
			add("recursive")
		}
		if m := s.Map; m != nil {
			add("files of " + strconv.Itoa(m.FSUID) + ":" + strconv.Itoa(m.FSGID) + " belong to " + strconv.Itoa(m.UID) + ":" + strconv.Itoa(m.GID))
		}
		add("as #" + strconv.Itoa(s.Slot))
	case OpOverlay:
		add(s.Source, attrString(s.Flags), "changes in "+s.Data)
		if m := s.Map; m != nil {
			add("files of " + strconv.Itoa(m.FSUID) + ":" + strconv.Itoa(m.FSGID) + " belong to " + strconv.Itoa(m.UID) + ":" + strconv.Itoa(m.GID))
		}
		add("as #" + strconv.Itoa(s.Slot))
	case OpEmpty:
		add(s.Data, attrString(s.Flags), "as #"+strconv.Itoa(s.Slot))
	case OpRestrict:
		add(s.Path, attrString(s.Flags))
	case OpRoot:
		add("#" + strconv.Itoa(s.Slot))
	case OpAttach:
		add("#"+strconv.Itoa(s.Slot)+" at", s.Path)
	case OpMount:
		add(s.FSType, s.Path, attrString(s.Flags), s.Data)
	case OpMkdir:
		add(s.Path, "0"+strconv.FormatUint(uint64(s.Mode), 8))
	case OpSymlink:
		add(s.Path, "->", s.Source)
	case OpFile:
		add(s.Path, strconv.Itoa(len(s.Data))+" bytes")
	case OpRlimit:
		add(s.Names...)
		add(limitString(s.Soft) + ":" + limitString(s.Hard))
	case OpLocal:
		add(s.Path + "/" + strconv.FormatUint(s.Num, 10))
	case OpSocket:
		add(s.Names...)
		add(s.Path, "port "+strconv.FormatUint(s.Num, 10))
	case OpHostname:
		add(s.Data)
	case OpOOM:
		add(strconv.FormatUint(s.Num, 10))
	case OpSeccomp, OpObserve:
		add(s.Path)
	case OpLandlock:
		add(s.Names...)
	default:
		add(s.Path)
	}
	return strings.Join(w, " ")
}

func limitString(v uint64) string {
	if v == ^uint64(0) {
		return "unlimited"
	}
	return strconv.FormatUint(v, 10)
}

// String is the plan as a person reads it: every step with its reason, what the
// witness tries, what is limited and by what, and what is missing.
func (p *Plan) String() string {
	var b strings.Builder
	line := func(parts ...string) {
		for _, s := range parts {
			b.WriteString(s)
		}
		b.WriteByte('\n')
	}
	line("plan ", p.Name)
	line("  ids      ", strconv.Itoa(p.IDs.InnerUID), ":", strconv.Itoa(p.IDs.InnerGID), " inside, ",
		strconv.Itoa(p.IDs.OuterUID), ":", strconv.Itoa(p.IDs.OuterGID), " on the host")
	line("  worker   ", strings.Join(p.Worker.Argv, " "))
	line("  in       ", p.Worker.Dir)
	if p.SeccompName != "" {
		line("  seccomp  ", p.SeccompName, " ", p.SeccompDigest)
	}
	line("steps")
	for i, s := range p.Steps {
		number := strconv.Itoa(i + 1)
		line("  ", strings.Repeat(" ", max(0, 3-len(number))), number, " ", string(s.Side), ": ", s.Title())
		for _, r := range s.Rules {
			line("      ", r.Path, ": ", strings.Join(r.Names, " "))
		}
		line("      because ", s.Reason)
	}
	line("witness")
	for _, c := range p.Witness {
		line("  ", c.Name, ": ", strings.Join(c.Want, " or "))
		line("      because ", c.Reason)
	}
	line("limits")
	for _, l := range p.Limits {
		line("  ", l.Name, " ", strconv.FormatInt(l.Value, 10), " by ", l.By)
	}
	if len(p.Degraded) > 0 {
		line("degraded")
		for _, d := range p.Degraded {
			line("  ", d.Feature, ": ", d.Why)
			if d.Remedy != "" {
				line("      remedy: ", d.Remedy)
			}
		}
	}
	return b.String()
}
