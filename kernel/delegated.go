package kernel

import (
	"errors"
	"fmt"

	"cellblock/kernel/delegate"
	"cellblock/policy"
)

// delegated starts what answers the query to which the policy delegates host calls.
func (s *Session) delegated() error {
	r := s.policy.Tools.Rego
	if r == nil {
		return nil
	}
	var err error
	switch {
	case len(r.Sources) == 0:
		err = errors.New("its modules have not been read")
	case s.opts.Rego == "":
		err = errors.New("no program is named that evaluates it: cellblock-rego is installed beside cellblock")
	default:
		s.rego, err = delegate.Start(s.opts.Rego, *r)
	}
	if err != nil {
		s.rego = nil
		return fmt.Errorf("policy %s: tools.rego: %w", s.policy.Name, err)
	}
	return nil
}

// decideTool is the policy's decision on a host call.
func (s *Session) decideTool(op policy.ToolOp) policy.Decision {
	var rego policy.Evaluator
	if s.rego != nil {
		rego = s.rego
	}
	return s.policy.DecideTool(op, rego)
}
