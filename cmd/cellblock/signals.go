package main

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// signals turns what the terminal and the system send into the ladder of a
// session: Ctrl-C interrupts the cell, a second one ends its worker; the other
// signals end it at once. So does a closed standard output, since nobody is
// left to read.
type signals struct {
	session cellSession
	ch      chan os.Signal
	seen    atomic.Int32
	ended   sync.WaitGroup
}

func watchSignals(session cellSession) *signals {
	s := &signals{session: session, ch: make(chan os.Signal, 4)}
	signal.Notify(s.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	s.ended.Go(s.watch)
	return s
}

func (s *signals) watch() {
	for sig := range s.ch {
		first := s.seen.Add(1) == 1
		if sig == syscall.SIGINT && first && s.session.Interrupt() {
			continue
		}
		s.session.Abort()
	}
}

// asked reports whether someone wants the command to end.
func (s *signals) asked() bool { return s.seen.Load() > 0 }

// done stops watching.
func (s *signals) done() {
	signal.Stop(s.ch)
	close(s.ch)
	s.ended.Wait()
}
