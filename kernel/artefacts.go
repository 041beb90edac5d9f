package kernel

import (
	"time"

	"cellblock/kernel/artefact"
)

// lookTime bounds each look for artefacts: a disk may not answer.
const lookTime = 2 * time.Second

// noAnswer is the note for a look that did not end in time.
const noAnswer = "artefacts: the session directory was not read within 2 s; this cell's are not told of"

// artefacts runs a cell and tells in its result which files of the session directory it
// has made and changed.
func (s *Session) artefacts(run func() Result) Result {
	if !s.opts.Artefacts {
		return run()
	}
	type begun struct {
		watch *artefact.Watch
		err   error
	}
	before, ok := inTime(func() begun {
		w, err := artefact.Begin(s.dir)
		return begun{w, err}
	}, func(late begun) {
		if late.err == nil {
			late.watch.Close()
		}
	})
	r := run()
	switch {
	case !ok:
		r.Details.Notes = append(r.Details.Notes, noAnswer)
		return r
	case before.err != nil:
		r.Details.Notes = append(r.Details.Notes, before.err.Error())
		return r
	}
	type ended struct {
		files []artefact.File
		notes []string
	}
	after, ok := inTime(func() ended {
		defer before.watch.Close()
		files, notes := before.watch.End()
		return ended{files, notes}
	}, func(ended) {})
	if !ok {
		after.notes = []string{noAnswer}
	}
	r.Details.Artefacts = after.files
	r.Details.Notes = append(r.Details.Notes, after.notes...)
	return r
}

// inTime has do done and waits for it, but not for longer than lookTime; late gets what
// comes after that.
func inTime[T any](do func() T, late func(T)) (result T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- do() }()
	over := time.NewTimer(lookTime)
	defer over.Stop()
	select {
	case result = <-done:
		return result, true
	case <-over.C:
		go func() { late(<-done) }()
		return result, false
	}
}
