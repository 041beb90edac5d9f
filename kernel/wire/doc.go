// Package wire speaks the protocol between launcher and worker: one line of
// JSON a message, over a Unix stream socket that only the two ends hold.
// PROTOCOL.md beside this file is normative; a test compares its tables with
// the constants here.
//
//	c := wire.NewConn(file)
//	c.WriteRequest(wire.RunBlock{ID: 1, Session: "s1", Code: "1 + 1"}, nil)
//	m, err := c.ReadMessage() // reply or request of the worker
//
// What comes from a worker is not trusted. A line's length, the nesting and the
// number of elements are bounded before memory is taken for them, and anything
// that is not exactly in the closed set of messages is a [*ProtocolError] with
// a name. Such an error ends the worker, never the launcher.
//
// # Limitations
//
// A Conn has one reader. Writers may be several; each line is written whole.
package wire
