package kernel

import (
	"fmt"
	"slices"
	"time"

	"cellblock/kernel/host"
	"cellblock/kernel/wire"
)

// bindTools tells a worker which tools its cells may try to call.
func (s *Session) bindTools(w *worker, limit time.Duration) error {
	for _, t := range s.door.Tools(host.BuiltIn) {
		if len(t.Roles) > 0 && !slices.Contains(t.Roles, host.RoleSandbox) {
			continue
		}
		m, err := w.request(wire.Request{Op: wire.OpInstallTool, Session: s.name, Name: t.Name, Schema: t.Schema, Doc: t.Doc, Signature: t.Signature}, limit)
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return fmt.Errorf("tool %s: bind it in the session: %w", t.Name, err)
		}
	}
	return nil
}
