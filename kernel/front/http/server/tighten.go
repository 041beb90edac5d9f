package server

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"cellblock/kernel"
	"cellblock/kernel/front/http/api"
	"cellblock/policy"
)

// modes are in order: each lets a session do less to the host than the one before.
var modes = []policy.Mode{policy.Off, policy.Report, policy.Shadow, policy.Enforce}

// tighten returns the operator's options with what a request sets in place, and how
// long its session may be unused. What is wider than the operator's is refused: nothing
// is made smaller in silence.
func (s *Server) tighten(c api.Create, directory string) (kernel.Options, time.Duration, *answer) {
	o := s.config.Session.Kernel()
	o.SessionDir = directory
	idle := s.config.Bounds.Idle
	invalid := func(field, why string, args ...any) *answer {
		return refuse(http.StatusBadRequest, api.CodeInvalid, "field %q: "+why, append([]any{field}, args...)...)
	}
	wider := func(field, why string, args ...any) *answer {
		return refuse(http.StatusForbidden, api.CodeWider, "field %q: "+why+"; a request can make it tighter only", append([]any{field}, args...)...)
	}
	fail := func(a *answer) (kernel.Options, time.Duration, *answer) { return o, 0, a }

	if c.Name != "" && !tokenName.MatchString(c.Name) {
		return fail(invalid("name", "give up to 64 letters, digits and ._-, the first a letter or a digit"))
	}
	if c.Mode != "" {
		mode, err := policy.ParseMode(string(c.Mode))
		if err != nil {
			return fail(invalid("mode", "%v", err))
		}
		if slices.Index(modes, mode) < slices.Index(modes, o.Mode) {
			return fail(wider("mode", "%s is wider than the operator's %s", mode, o.Mode))
		}
		o.Mode = mode
	}
	switch c.Net {
	case "":
	case policy.NetNone:
		o.Net = policy.NetNone
	default:
		return fail(wider("net", "%.20q: what a session reaches is the operator's, except \"none\"", c.Net))
	}
	if c.OnTimeout != "" {
		if c.OnTimeout != kernel.TimeoutKill && c.OnTimeout != kernel.TimeoutInterrupt {
			return fail(invalid("onTimeout", "%.20q is neither kill nor interrupt", c.OnTimeout))
		}
		o.OnTimeout = c.OnTimeout
	}
	seconds := func(field string, value float64, most time.Duration, into *time.Duration) *answer {
		if value == 0 {
			return nil
		}
		d, err := secondsOf(value)
		switch {
		case err != "":
			return invalid(field, "%s", err)
		case d > most:
			return wider(field, "%v is more than the operator's %v", d, most)
		}
		*into = d
		return nil
	}
	if a := seconds("timeoutSeconds", c.TimeoutSeconds, o.CellTimeout, &o.CellTimeout); a != nil {
		return fail(a)
	}
	if c.IdleSeconds > 0 && c.IdleSeconds < api.MinIdle.Seconds() {
		return fail(invalid("idleSeconds", "a session that ends after less than %v cannot be used", api.MinIdle))
	}
	if a := seconds("idleSeconds", c.IdleSeconds, idle, &idle); a != nil {
		return fail(a)
	}
	switch {
	case c.MaxOutput < 0:
		return fail(invalid("maxOutput", "%d is negative", c.MaxOutput))
	case c.MaxOutput > o.MaxOutput:
		return fail(wider("maxOutput", "%d is more than the operator's %d", c.MaxOutput, o.MaxOutput))
	case c.MaxOutput > 0:
		o.MaxOutput = c.MaxOutput
	}
	limits, a := s.tighterLimits(o, c.Limits)
	if a != nil {
		return fail(a)
	}
	o.Limits = limits
	return o, idle, nil
}

// tighterLimits puts a request's limits over the operator's.
func (s *Server) tighterLimits(o kernel.Options, asked map[string]string) (policy.Limits, *answer) {
	limits := o.Limits
	for name, text := range asked {
		field := limits.Field(name)
		if field == nil {
			return limits, refuse(http.StatusBadRequest, api.CodeInvalid, "field \"limits\": there is no limit %.40q; choose from %s", name, strings.Join(policy.LimitNames(), ", "))
		}
		n, err := policy.ParseLimit(name, text)
		if err != nil {
			return limits, refuse(http.StatusBadRequest, api.CodeInvalid, "field \"limits\": %s: %.200s", name, err)
		}
		if most := *s.limits.Field(name); most != 0 && n > most {
			return limits, refuse(http.StatusForbidden, api.CodeWider, "field \"limits\": %s: %.40s is more than the operator's %d; a request can make it tighter only", name, text, most)
		}
		*field = n
	}
	return limits, nil
}

// longest is what a number of seconds may be at most: more is no time that anything
// here lasts, and far below what a Duration can hold.
const longest = 365 * 24 * time.Hour

// secondsOf reads a number of seconds; err says why it is none.
func secondsOf(value float64) (d time.Duration, err string) {
	if !(value >= 0.001 && value <= longest.Seconds()) {
		return 0, "give seconds, from 0.001 up to a year"
	}
	return time.Duration(value * float64(time.Second)), ""
}
