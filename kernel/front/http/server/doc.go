// Package server offers many sessions to many callers over HTTP: on a Unix socket, where
// Linux says who connects, and on loopback, where a token does.
//
//	s, err := server.New(config, server.Hooks{Log: logger})
//	if err != nil { … }
//	err = s.Serve(ctx) // until ctx ends and what runs has drained
//
// # What it enforces
//
// A caller is a user of the host or the owner of a token. It sees its own sessions and
// no trace of others; ids of sessions are no secrets that anything rests on. Where a
// session may be, its mode, policy and limits are the operator's: a request can make
// them tighter and never wider. The directory of the socket and the file of tokens are
// hidden from every session, in every mode.
//
// # Limitations
//
// Sessions run with the server's rights, whoever asks for them: who may connect can do
// through a session what its mode lets it do. Numbers in /v1/metrics are those of all
// callers together. A session in a mode that leaves it the host's network reaches the
// loopback port, and needs a token there like everybody else.
package server
