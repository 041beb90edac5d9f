package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"

	"cellblock/kernel/proxy"
)

// Inbound is a port of a session that can be reached from the host.
type Inbound struct {
	Name string `json:"name"` // of the policy's rule
	Port int    `json:"port"` // inside
	// Address is where it is reached: on loopback of the host, by any of its users. The
	// port is another than inside, unless the session has the host's network.
	Address string `json:"address"`
}

// openInbound listens for the ports that the policy names. They stay the same for all
// generations; while none runs, or nobody listens inside, connections are reset.
func (s *Session) openInbound() error {
	rules := s.policy.Network.Inbound
	if len(rules) == 0 {
		return nil
	}
	if !s.hasOutlet() {
		for _, r := range rules {
			s.inbound = append(s.inbound, Inbound{r.Name, r.Port, fmt.Sprintf("%s:%d", inside, r.Port)})
		}
		return nil
	}
	s.forwards = proxy.New(proxy.Config{})
	for _, r := range rules {
		l, err := net.Listen("tcp", inside.String()+":0")
		if err != nil {
			s.forwards.Close()
			return fmt.Errorf("policy %s: net.inbound %s: %w", s.policy.Name, r.Name, err)
		}
		s.inbound = append(s.inbound, Inbound{r.Name, r.Port, l.Addr().String()})
		go s.forwards.Forward(l, func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, r.Port) })
	}
	return nil
}

func (s *Session) closeInbound() {
	if s.forwards != nil {
		s.forwards.Close()
	}
}

// dial connects to a port of the session's own network.
func (s *Session) dial(ctx context.Context, port int) (net.Conn, error) {
	s.mu.Lock()
	w := s.worker
	s.mu.Unlock()
	if w == nil {
		return nil, errors.New("no worker runs")
	}
	return w.proc.Dial(ctx, port)
}
